"""Expressions of native functions: operands and their LLVM code."""

from __future__ import annotations

import ast
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import NoneType
from typing import Any, NoReturn

import numpy as np
from llvmlite import ir

from mxrun.base.dataclass import dataclass
from mxrun.codegen.code_identity import InlinedBody, is_named_tuple
from mxrun.codegen.sequential import arithmetic
from mxrun.codegen.sequential.arithmetic import Untyped, common, converted, truth
from mxrun.codegen.sequential.intrinsic import Intrinsic, number, operand_of
from mxrun.codegen.sequential.kinds import (
    BFLOAT16,
    BOOL,
    INT64,
    NUMBERS,
    Kind,
    NamedParts,
    Operand,
    Pointer,
    Record,
    Static,
    TypedValue,
    like,
)
from mxrun.codegen.sequential.llvm_control import variable


@dataclass
class JumpTargets:
    """Blocks to which `continue` and `break` jump.

    is_independent: whether the loop declares that its iterations are, by `each`.
    """

    following: Any
    after: Any
    is_broken: bool = False
    is_independent: bool = False


@dataclass
class Scope:
    """Variables, loops and end of one inlined function.

    number: counts the calls. names: values of the function's own global names, for those that the
    function lacks that it becomes part of. consume: generates the body of the loop over what the
    function yields; None if it is not such a function. last: variables of an `each` loop that has
    ended, whose values would be those of its last iteration.
    """

    number: int
    leave: Any
    names: Mapping[str, Any]
    consume: Callable[[Operand], None] | None = None
    variables: dict[str, Operand] = field(default_factory=dict)
    loops: list[JumpTargets] = field(default_factory=list)
    last: set[str] = field(default_factory=set)


@dataclass
class KnownSoFar:
    """Findings of earlier attempts to generate a function's code.

    kinds: types of variables by scope and name. in_order: numbers of the `each` loops whose
    iterations a card's threads run together, see `half_warp_statements`.
    """

    kinds: dict[tuple[int, str], Kind | Pointer] = field(default_factory=dict)
    in_order: set[int] = field(default_factory=set)


@dataclass(frozen=True, eq=False)
class Closure:
    """Lambda expression, and the scope whose variables it reads when it is called."""

    node: ast.Lambda
    scope: Scope


class Expressions(ABC):
    """Generator of the code of expressions, with the variables of the current scope.

    names: values of the global names; those in `intrinsics` generate code of their own.
    is_complete: whether the code is right; else it is generated again, with what is known then.
    """

    scope: Scope
    is_complete = True
    _scopes = 0

    def __init__(
        self,
        builder: Any,
        names: Mapping[str, Any],
        intrinsics: Mapping[Any, Intrinsic],
        known: KnownSoFar,
    ) -> None:
        self.builder = builder
        self._names, self._intrinsics, self.known = names, intrinsics, known

    @abstractmethod
    def inlined(
        self, body: Callable[..., Any], arguments: Sequence[Operand], named: Mapping[str, Operand]
    ) -> Operand:
        """Generate a function's code in place; return its result."""

    def unknown(self, node: ast.AST) -> NoReturn:
        """Raise Untyped for a part of Python that native functions do not have."""
        raise Untyped(f"native functions have no {type(node).__name__}")

    # Variables

    def assign_name(self, name: str, value: Operand) -> None:
        variables = self.scope.variables
        self.scope.last.discard(name)
        variables[name] = self.stored(name, variables.get(name), value)

    def stored(self, name: str, place: Operand | None, value: Operand) -> Operand:
        """Store a value in a variable's memory, which is allocated the first time."""
        if isinstance(value, Static):
            if place is not None:
                raise Untyped(f"{name} has a value already; it can only change to a number")
            return value
        if isinstance(value, tuple):
            places = place if isinstance(place, tuple) else (None,) * len(value)
            if len(places) != len(value) or isinstance(place, TypedValue):
                raise Untyped(f"{name} has tuples of several lengths, or a tuple and a number")
            parts = enumerate(zip(places, value, strict=True))
            stored = [self.stored(f"{name}.{i}", each, part) for i, (each, part) in parts]
            return like(stored, value)
        if not isinstance(place, (TypedValue, NoneType)):
            raise Untyped(f"{name} is a number and something else")
        key = self.scope.number, name
        before = self.known.kinds.get(key, value.kind)
        self.known.kinds[key] = kind = common(before, value.kind)
        if kind != before:
            # The code so far has the narrower type: it is generated again.
            self.is_complete, place = False, None
        if place is None:
            place = TypedValue(kind, variable(self.builder, kind.code, name))
        self.builder.store(converted(self.builder, value, kind).code, place.code)
        return place

    def read(self, name: str) -> Operand:
        if name in self.scope.last:
            raise Untyped(f"{name} would be that of the last of independent iterations")
        return self.loaded(self.scope.variables[name])

    def loaded(self, place: Operand) -> Operand:
        if isinstance(place, tuple):
            return like(map(self.loaded, place), place)
        if isinstance(place, Static):
            return place
        return TypedValue(place.kind, self.builder.load(place.code))

    # Expressions

    def expression(self, node: ast.expr) -> Operand:
        found: Operand = getattr(self, f"of_{type(node).__name__.lower()}", self.unknown)(node)
        return found

    def operands(self, nodes: Sequence[ast.expr]) -> list[Operand]:
        found: list[Operand] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                parts = self.expression(node.value)
                if not isinstance(parts, tuple):
                    raise Untyped("only a tuple can be unpacked")
                found += parts
            else:
                found.append(self.expression(node))
        return found

    def integer(self, operand: Operand) -> Any:
        return operand_of(self.builder, operand, INT64)

    def condition(self, node: ast.expr) -> Any:
        if isinstance(node, ast.BoolOp):
            parts = [partial(self.condition, part) for part in node.values]
            return self.decided(parts, isinstance(node.op, ast.Or))
        return truth(self.builder, number(self.expression(node))).code

    def known_condition(self, node: ast.expr) -> bool | None:
        """Return the value of a condition that is an argument known at compile time, or None."""
        if isinstance(node, ast.Attribute):
            found = self.expression(node)
            if isinstance(found, TypedValue) and isinstance(found.code, ir.Constant):
                return bool(found.code.constant)
        return None

    def of_constant(self, node: ast.Constant) -> Operand:
        return _constant(node.value)

    def of_name(self, node: ast.Name) -> Operand:
        if node.id in self.scope.variables:
            return self.read(node.id)
        if node.id in self._names:
            return _constant(self._names[node.id])
        if node.id in self.scope.names:
            return _constant(self.scope.names[node.id])
        builtin = _BUILTINS.get(node.id)
        if builtin is None:
            raise Untyped(f"{node.id} is not defined")
        return Static(builtin)

    def of_attribute(self, node: ast.Attribute) -> Operand:
        owner = self.expression(node.value)
        if isinstance(owner, NamedParts):
            if node.attr not in owner.fields:
                raise Untyped(f"there is no field {node.attr}")
            return owner[owner.fields.index(node.attr)]
        if not isinstance(owner, Static):
            raise Untyped("numbers have no attributes")
        if isinstance(owner.content, Record):
            if node.attr not in owner.content.values:
                raise Untyped(f"no argument is named {node.attr}")
            return owner.content.values[node.attr]
        return _constant(getattr(owner.content, node.attr))

    def of_tuple(self, node: ast.Tuple) -> Operand:
        return tuple(self.operands(node.elts))

    def of_binop(self, node: ast.BinOp) -> Operand:
        known = _folded(node)
        if known is not None:
            return _constant(known)
        return self.arithmetic(node.op, self.expression(node.left), self.expression(node.right))

    def arithmetic(self, operator: ast.operator, left: Operand, right: Operand) -> Operand:
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(operator, ast.Add):
            return left + right
        return arithmetic.binary(self.builder, operator, number(left), number(right))

    def of_unaryop(self, node: ast.UnaryOp) -> Operand:
        known = _folded(node)
        if known is not None:
            return _constant(known)
        value = number(self.expression(node.operand))
        if isinstance(node.op, ast.USub):
            return arithmetic.negated(self.builder, value)
        if isinstance(node.op, ast.Not):
            return TypedValue(BOOL, self.builder.not_(truth(self.builder, value).code))
        return self.unknown(node.op)

    def of_compare(self, node: ast.Compare) -> Operand:
        first, *others = node.ops
        if isinstance(first, (ast.Is, ast.IsNot)) and not others:
            same = self.same_address(node.left, node.comparators[0])
            negative = isinstance(first, ast.IsNot)
            return TypedValue(BOOL, self.builder.not_(same) if negative else same)
        left = number(self.expression(node.left))

        def link(operator: ast.cmpop, following: ast.expr) -> Any:
            nonlocal left
            before, left = left, number(self.expression(following))
            return arithmetic.compared(self.builder, operator, before, left).code

        links = [partial(link, *each) for each in zip(node.ops, node.comparators, strict=True)]
        return TypedValue(BOOL, self.decided(links, False) if others else links[0]())

    def same_address(self, left: ast.expr, right: ast.expr) -> Any:
        """Compare two addresses; that of None is 0."""
        codes = []
        for node in (left, right):
            operand = self.expression(node)
            if operand == Static(None):
                codes.append(INT64.code(0))
            elif isinstance(operand, TypedValue) and isinstance(operand.kind, Pointer):
                codes.append(self.builder.ptrtoint(operand.code, INT64.code))
            else:
                raise Untyped("`is` compares addresses and None")
        return self.builder.icmp_unsigned("==", *codes)

    def of_boolop(self, node: ast.BoolOp) -> Operand:
        def exact(part: ast.expr) -> Any:
            value = number(self.expression(part))
            if value.kind != BOOL:
                raise Untyped("`and` and `or` of numbers can only be conditions")
            return value.code

        parts = [partial(exact, part) for part in node.values]
        return TypedValue(BOOL, self.decided(parts, isinstance(node.op, ast.Or)))

    def decided(self, parts: Sequence[Callable[[], Any]], by: bool) -> Any:
        """Generate conditions in order until one is `by` at run time, which decides the result."""
        after = self.builder.append_basic_block("decided")
        place = variable(self.builder, BOOL.code)
        for part in parts:
            found = part()
            self.builder.store(found, place)
            following = self.builder.append_basic_block("undecided")
            self.builder.cbranch(found, *((after, following) if by else (following, after)))
            self.builder.position_at_end(following)
        self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(place)

    def of_ifexp(self, node: ast.IfExp) -> Operand:
        known = self.known_condition(node.test)
        if known is not None:
            return self.expression(node.body if known else node.orelse)
        then, otherwise, after = (
            self.builder.append_basic_block(name) for name in ("then", "otherwise", "after")
        )
        self.builder.cbranch(self.condition(node.test), then, otherwise)
        # Not a name of Python, so that it collides with no variable.
        name = f"if {node.lineno}:{node.col_offset}"
        for block, part in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            self.assign_name(name, self.expression(part))
            self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.read(name)

    def of_subscript(self, node: ast.Subscript) -> Operand:
        owner = self.expression(node.value)
        if isinstance(owner, tuple):
            return self.part(owner, node.slice)
        return self.load_element(self.element(node, owner))

    def part(self, parts: tuple[Operand, ...], index: ast.expr) -> Operand:
        """Return a part of a tuple; if the index is known only at run time, one of numbers."""
        code = self.integer(self.expression(index))
        if isinstance(code, ir.Constant):
            if not -len(parts) <= code.constant < len(parts):
                raise Untyped(f"a tuple of {len(parts)} has no part {code.constant}")
            return parts[int(code.constant)]
        if not self.is_below(index, len(parts)):
            raise Untyped(f"an index that varies must be i % n, n at most {len(parts)}")
        numbers = [number(each) for each in parts]
        if len({each.kind for each in numbers}) > 1:
            raise Untyped("an index that varies needs a tuple of numbers of one type")
        found = numbers[-1].code
        for position, each in enumerate(numbers[:-1]):
            here = self.builder.icmp_signed("==", code, INT64.code(position))
            found = self.builder.select(here, each.code, found)
        return TypedValue(numbers[0].kind, found)

    def is_below(self, index: ast.expr, length: int) -> bool:
        """Return whether an integer is a remainder of a constant divisor that is <= `length`."""
        if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Mod):
            return False
        divisor = self.integer(self.expression(index.right))
        return isinstance(divisor, ir.Constant) and 0 < divisor.constant <= length

    def element(self, node: ast.Subscript, owner: Operand | None = None) -> TypedValue:
        """Return an element's kind and its address."""
        owner = self.expression(node.value) if owner is None else owner
        if not isinstance(owner, TypedValue) or not isinstance(owner.kind, Pointer):
            raise Untyped("only addresses and tuples have elements")
        index = self.integer(self.expression(node.slice))
        return TypedValue(owner.kind.element, self.builder.gep(owner.code, [index]))

    def load_element(self, place: TypedValue) -> TypedValue:
        """Read the element at an address."""
        self.no_bfloat16(place)
        return TypedValue(place.kind, self.builder.load(place.code))

    def no_bfloat16(self, place: TypedValue) -> None:
        if place.kind == BFLOAT16:
            raise Untyped("bfloat16 is read and written by load_lanes and store_lanes")

    def of_lambda(self, node: ast.Lambda) -> Operand:
        return Static(Closure(node, self.scope))

    def closed(self, function: Closure, arguments: Sequence[Operand]) -> Operand:
        """Generate a lambda's expression in place; it sees the variables of its own scope."""
        parameters = [each.arg for each in function.node.args.args]
        if len(arguments) != len(parameters):
            raise Untyped(f"a lambda takes {len(parameters)} arguments, not {len(arguments)}")
        around, outer = function.scope, self.scope
        seen = {name: each for name, each in around.variables.items() if name not in parameters}
        self._scopes += 1
        last = around.last.difference(parameters)
        self.scope = replace(around, number=self._scopes, variables=seen, last=last)
        for name, value in zip(parameters, arguments, strict=True):
            self.assign_name(name, value)
        found = self.expression(function.node.body)
        self.scope = outer
        return found

    def called(self, node: ast.Call) -> tuple[Any, list[Operand], dict[str, Operand]]:
        """Return the function of a call, its arguments and those with names."""
        function = self.expression(node.func)
        if not isinstance(function, Static):
            raise Untyped("only functions can be called")
        arguments = self.operands(node.args)
        if any(each.arg is None for each in node.keywords):
            raise Untyped("arguments cannot be unpacked from a dictionary")
        named = {str(each.arg): self.expression(each.value) for each in node.keywords}
        return function.content, arguments, named

    def of_call(self, node: ast.Call) -> Operand:
        content, arguments, named = self.called(node)
        if isinstance(content, InlinedBody):
            return self.inlined(content.body, arguments, named)
        if isinstance(content, Closure):
            return self.closed(content, arguments)
        if is_named_tuple(content):
            bound = inspect.signature(content).bind(*arguments, **named)
            return NamedParts(bound.args, content._fields)
        intrinsic = self._intrinsics.get(content)
        if intrinsic is None:
            raise Untyped(f"{content} cannot be called in a native function")
        try:
            inspect.signature(intrinsic).bind(self.builder, *arguments, **named)
        except TypeError as error:
            raise Untyped(f"{ast.unparse(node.func)}: {error}") from error
        return self.generated(content, intrinsic, arguments, named)

    def generated(
        self,
        declared: Any,
        intrinsic: Intrinsic,
        arguments: Sequence[Operand],
        named: Mapping[str, Operand],
    ) -> Operand:
        """Generate the code of an intrinsic that is declared as a function."""
        return intrinsic(self.builder, *arguments, **named)


_BUILTINS = {each.__name__: each for each in (range, min, max, abs, int, float, bool)}


def _constant(value: Any) -> Operand:
    """Return the operand of a value that is known when the function is compiled."""
    kind = NUMBERS.get(type(value))
    if kind is not None:
        plain = value.item() if isinstance(value, np.generic) else value
        if kind == INT64 and not -(2**63) <= plain < 2**63:
            raise Untyped(f"{plain} is beyond 64 bits")
        return TypedValue(kind, kind.code(int(plain) if kind == BOOL else plain))
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    return Static(value)


def _folded(node: ast.expr) -> int | float | None:
    """Return the value of an expression of literals, such as -1 or 2.0**-24; None for others."""
    literals = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant)
    if not all(isinstance(each, literals) for each in ast.walk(node)):
        return None
    code = compile(ast.Expression(node), "<literals>", "eval")
    found: int | float = eval(code, {"__builtins__": {}})
    return found
