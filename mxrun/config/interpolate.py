"""Interpolation of `${...}` in texts by the value of the arithmetic within.

A text that is exactly one `${...}` becomes the value itself, of any type. Within a longer text the
value is converted to text. `$${` is an escaped `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mxrun.base.description import describe_value
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.config.arithmetic import ExpressionError, evaluate
from mxrun.config.load import DEEPEST, MAX_VALUES
from mxrun.config.marked import SourceNode

LONGEST_TEXT = 1000

_EXPRESSION = re.compile(r"\$\$\{|\$\{(?P<expression>[^{}]*)\}|(?P<open>\$\{)")


class Interpolator:
    """Replaces expressions, and counts all values created to bound the size of a config."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._values = 0

    def interpolate(
        self, node: SourceNode, names: Mapping[str, SourceNode], chain: tuple[str, ...] = ()
    ) -> SourceNode:
        """Return `node` with every expression in its texts replaced; raises UserError beyond
        limits.

        `chain`: the blocks through which the expressions were reached, for diagnostics.
        """
        self.count(1, node.place)
        if isinstance(node.value, Mapping):
            parts = {k: self.interpolate(part, names, chain) for k, part in node.value.items()}
            return SourceNode(parts, node.place, node.key_place)
        if isinstance(node.value, tuple):
            items = tuple(self.interpolate(part, names, chain) for part in node.value)
            return SourceNode(items, node.place, node.key_place)
        if isinstance(node.value, str) and "${" in node.value:
            return self._text(node, node.value, names, chain)
        return node

    def check_depth(self, node: SourceNode) -> None:
        """Raise UserError if a value passed to a block is nested too deeply."""
        if depth_of(node) > DEEPEST:
            raise UserError(
                Diagnostic("nested too deeply", node.place, f"at most {DEEPEST} levels")
            )

    def count(self, values: int, place: SourceLocation) -> None:
        """Count values created by expansion; raises UserError beyond the limit."""
        self._values += values
        if self._values > MAX_VALUES:
            problem = "blocks and repeats expand to too many values"
            raise UserError(Diagnostic(problem, place, f"at most {MAX_VALUES}"))

    def _text(
        self, node: SourceNode, text: str, names: Mapping[str, SourceNode], chain: tuple[str, ...]
    ) -> SourceNode:
        whole = _EXPRESSION.fullmatch(text)
        unknown = self._diagnostics.unknown
        if any(part.place in unknown and mentions(node, name) for name, part in names.items()):
            return self._stand_in(node)
        try:
            if whole and whole["expression"] is not None:
                value = self._value(whole["expression"], names)
                self.count(size_of(value), node.place)
                return SourceNode(value.value, node.place, node.key_place)
            written = _EXPRESSION.sub(lambda match: self._written(match, names), text)
        except ExpressionError as error:
            problem = f"{error} (character {error.offset + 1} of the expression)"
            self._diagnostics.add(
                Diagnostic(problem, node.place, got=text, hint=error.hint, chain=chain)
            )
            return self._stand_in(node)
        if len(written) > LONGEST_TEXT:
            raise UserError(
                Diagnostic("the text grows too long", node.place, f"up to {LONGEST_TEXT}")
            )
        return SourceNode(written, node.place, node.key_place)

    def _stand_in(self, node: SourceNode) -> SourceNode:
        """Return a value in place of an unknown one, whose further problems are not reported."""
        self._diagnostics.unknown.add(node.place)
        return SourceNode(0, node.place, node.key_place)

    def _value(self, expression: str, names: Mapping[str, SourceNode]) -> SourceNode:
        name = expression.strip()
        if name in names:
            return names[name]
        plain = {name: part.value for name, part in names.items()}
        return SourceNode(evaluate(expression, plain), SourceLocation("", 0, 0))

    def _written(self, match: re.Match[str], names: Mapping[str, SourceNode]) -> str:
        if match["open"]:
            raise ExpressionError("a closing } is missing", 0)
        if match["expression"] is None:
            return "${"
        value = self._value(match["expression"], names).value
        if value is None or isinstance(value, (Mapping, tuple)):
            raise ExpressionError(f"cannot be written inside a text: {describe_value(value)}", 0)
        return str(value).lower() if isinstance(value, bool) else str(value)


def mentions(node: SourceNode, name: str) -> bool:
    """Return whether an expression within `node` contains `name`."""
    if isinstance(node.value, Mapping):
        return any(mentions(part, name) for part in node.value.values())
    if isinstance(node.value, tuple):
        return any(mentions(part, name) for part in node.value)
    if not isinstance(node.value, str):
        return False
    expressions = (match["expression"] or "" for match in _EXPRESSION.finditer(node.value))
    return any(re.search(rf"\b{name}\b", expression) for expression in expressions)


def depth_of(node: SourceNode) -> int:
    """Return the number of nested levels of lists and mappings of a value."""
    return max((1 + depth_of(part) for part in _parts(node)), default=0)


def size_of(node: SourceNode) -> int:
    """Return the number of values in a value, including itself."""
    return 1 + sum(size_of(part) for part in _parts(node))


def _parts(node: SourceNode) -> tuple[SourceNode, ...]:
    if isinstance(node.value, Mapping):
        return tuple(node.value.values())
    return node.value if isinstance(node.value, tuple) else ()
