"""Safe evaluator for the arithmetic in `${...}`.

    expression := sum [(== | != | < | <= | > | >=) sum] [if expression else expression]
    sum        := product {(+ | -) product}
    product    := unary {(* | / | // | %) unary}
    unary      := (+ | -) unary | power
    power      := atom [** unary]
    atom       := number | name | (expression) | (min | max | round | int)(expression, ...)

Operators have Python's semantics: `/` gives a float, `//` floors, `a if c else b` selects. Integers
are below 2^63 and all numbers finite; the text has at most 200 characters.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias

from mxrun.base.description import describe_value
from mxrun.base.near_names import nearest

Number: TypeAlias = int | float

LONGEST = 200
_MAX_INTEGER = 1 << 63
_DEEPEST = 50
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark>\*\*|//|[<>=!]=|[-+*/%<>(),]))",
    re.ASCII,
)
_SUMS: dict[str, Callable[[Number, Number], Number]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[Number, Number], Number]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _round(value: Number, digits: int | None = None) -> Number:
    if digits is not None and abs(digits) > 64:
        raise ValueError("round takes -64 to 64 digits")
    return round(value, digits)


_FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "min": (min, 2, 99),
    "max": (max, 2, 99),
    "round": (_round, 1, 2),
    "int": (int, 1, 1),
}
RESERVED = frozenset({*_FUNCTIONS, "if", "else"})


class ExpressionError(ValueError):
    """Error for an expression that cannot be evaluated; `offset` is the position in its text, from
    0.
    """

    def __init__(self, problem: str, offset: int, hint: str = "") -> None:
        self.offset = offset
        self.hint = hint
        super().__init__(problem)


def evaluate(text: str, names: Mapping[str, object]) -> Number:
    """Return the value of an expression; raises ExpressionError with problem and position."""
    if len(text) > LONGEST:
        raise ExpressionError(f"an expression has at most {LONGEST} characters", 0)
    return _Parser(text, names).evaluate()


class _Parser:
    """Recursive-descent parser; the next token is (kind, text, offset)."""

    def __init__(self, text: str, names: Mapping[str, object]) -> None:
        self._tokens = _tokens(text)
        self._names = names
        self._at = 0
        self._depth = 0

    def evaluate(self) -> Number:
        value = self._expression()
        if self._ahead[0] != "end":
            self._fail(f"unexpected {self._ahead[1]!r}")
        return value

    @property
    def _ahead(self) -> tuple[str, str, int]:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str:
        """Consume the next token if it is one of `texts`; return its text, else an empty string."""
        kind, text, _ = self._ahead
        if kind == "number" or text not in texts:
            return ""
        self._at += 1
        return text

    def _need(self, text: str) -> None:
        if not self._take(text):
            self._fail(f"expected {text!r}")

    def _fail(self, problem: str, offset: int | None = None, hint: str = "") -> NoReturn:
        raise ExpressionError(problem, self._ahead[2] if offset is None else offset, hint)

    def _expression(self) -> Number:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"nested more than {_DEEPEST} deep")
        value = self._comparison()
        if self._take("if"):
            condition = self._comparison()
            self._need("else")
            otherwise = self._expression()
            value = value if condition else otherwise
        self._depth -= 1
        return value

    def _comparison(self) -> Number:
        left = self._left(_SUMS, self._product)
        if sign := self._take(*_COMPARISONS):
            return _COMPARISONS[sign](left, self._left(_SUMS, self._product))
        return left

    def _product(self) -> Number:
        return self._left(_PRODUCTS, self._unary)

    def _left(
        self, signs: Mapping[str, Callable[[Number, Number], Number]], part: Callable[[], Number]
    ) -> Number:
        """Parse parts joined by left-associative operators."""
        value = part()
        while True:
            offset = self._ahead[2]
            if not (sign := self._take(*signs)):
                return value
            value = self._apply(signs[sign], (value, part()), offset)

    def _unary(self) -> Number:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"nested more than {_DEEPEST} deep")
        if self._take("-"):
            value = -self._unary()
        elif self._take("+"):
            value = self._unary()
        else:
            value = self._power()
        self._depth -= 1
        return value

    def _power(self) -> Number:
        base = self._atom()
        offset = self._ahead[2]
        if not self._take("**"):
            return base
        exponent = self._unary()
        if abs(exponent) > 64:
            self._fail("an exponent must be between -64 and 64", offset)
        return self._apply(operator.pow, (base, exponent), offset)

    def _atom(self) -> Number:
        kind, text, offset = self._ahead
        if self._take("("):
            value = self._expression()
            self._need(")")
            return value
        if kind not in ("number", "name") or text in ("if", "else"):
            self._fail("the expression ends too early" if kind == "end" else f"unexpected {text!r}")
        self._at += 1
        if kind == "number":
            number = int(text) if text.isdigit() else float(text)
            return self._apply(lambda: number, (), offset)
        return self._call(text, offset) if text in _FUNCTIONS else self._look_up(text, offset)

    def _call(self, name: str, offset: int) -> Number:
        function, fewest, most = _FUNCTIONS[name]
        self._need("(")
        values = [self._expression()]
        while self._take(","):
            values.append(self._expression())
        self._need(")")
        if not fewest <= len(values) <= most:
            self._fail(f"{name} does not take {len(values)} values", offset)
        return self._apply(function, values, offset)

    def _look_up(self, name: str, offset: int) -> Number:
        if name not in self._names:
            known = ", ".join(sorted(self._names)) or "none here"
            hint = nearest(name, self._names) or f"known names: {known}"
            self._fail(f"unknown name {name!r}", offset, hint)
        value = self._names[name]
        if not isinstance(value, (int, float)):
            raise ExpressionError(f"{name!r} is not a number but {describe_value(value)}", offset)
        return value

    def _apply(
        self, function: Callable[..., Number], values: Sequence[Number], offset: int
    ) -> Number:
        try:
            result = function(*values)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ExpressionError(str(error), offset) from error
        if isinstance(result, int) and abs(result) >= _MAX_INTEGER:
            raise ExpressionError("an integer must stay below 2**63", offset)
        if isinstance(result, complex) or not math.isfinite(result):
            raise ExpressionError("the result is not a finite real number", offset)
        return result


def _tokens(text: str) -> list[tuple[str, str, int]]:
    tokens = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise ExpressionError(f"unexpected character {text[start]!r}", start)
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind], match.start(kind)))
        at = match.end()
    return [*tokens, ("end", "", end)]
