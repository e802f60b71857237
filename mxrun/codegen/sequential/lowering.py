"""Lowering of a Python function to LLVM: sequential code with loops and conditions.

The language is a part of Python: numbers, addresses and vectors, assignments, `if`, `while`, `for`
over `range`, `each` and functions that yield, calls of intrinsics, of lambdas and of other
functions, which are inlined. A variable has one type in the entire function: if an assignment does
not fit the type of those before it, the function is lowered again with the common type of both.

What could give wrong numbers is refused where the source shows it: a variable without a value on
some path (`assignment`), an iteration of `each` that depends on another one (`independence`), an
index that varies of a tuple unless it is `i % n` with n no larger than the tuple, a constant step 0
of a range. Unlike in Python, these are not checked at run time:
    - addresses have no bounds, and integers wrap at 64 bits;
    - integer division by 0 gives 0;
    - a shift by a negative number or by 64 or more has an arbitrary result;
    - a float beyond the integers of the type to which it is converted gives an arbitrary one;
    - a range with a step that is 0 at run time is empty or does not end.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from mxrun.base.dataclass import dataclass
from mxrun.codegen import intrinsics
from mxrun.codegen.code_identity import InlinedBody
from mxrun.codegen.llvm_block import address, function_of, slot
from mxrun.codegen.sequential.arithmetic import Untyped, converted
from mxrun.codegen.sequential.assignment import check_assigned
from mxrun.codegen.sequential.expressions import Expressions, JumpTargets, KnownSoFar, Scope
from mxrun.codegen.sequential.independence import check_independent, stored_names
from mxrun.codegen.sequential.intrinsic import Intrinsic, number
from mxrun.codegen.sequential.kinds import (
    FLOAT32,
    INT32,
    INT64,
    NOTHING,
    Kind,
    Operand,
    Pointer,
    Record,
    Static,
    TypedValue,
)
from mxrun.codegen.sequential.llvm_control import variable
from mxrun.codegen.sequential.syntax import tree_of

_RESULT = "return"
# Attempts to find the types of all variables; each but the last widens some.
_MAX_ATTEMPTS = 50
_MAX_DEPTH = 50


# Raised by generators of code and by LLVM's builder for operands that they do not take.
_MISUSES = (
    *(ArithmeticError, AssertionError, AttributeError, IndexError, KeyError),
    *(RecursionError, TypeError, ValueError),
)


@dataclass(frozen=True)
class Call:
    """Arguments of a native function, by kind in the order of their slots.

    constants: values of arguments that are known. maps: number of maps that `run_map` runs.
    """

    arguments: Mapping[str, Kind | Pointer]
    constants: Mapping[str, int]
    maps: int = 0


def lowered(
    symbol: str,
    body: Callable[..., Any],
    names: Mapping[str, Any],
    intrinsics: Mapping[Any, Intrinsic],
    call: Call,
    statements: type[Statements],
) -> Any:
    """Return an LLVM module with one function `symbol` of the form of `jit.NativeCode`.

    names: values of the global names; those in `intrinsics` generate code of their own. statements:
    the target's generator. Raises Untyped for code outside of the language.
    """
    known = KnownSoFar()
    for _ in range(_MAX_ATTEMPTS):
        module = ir.Module(symbol)
        function = function_of(module, symbol)
        # Variables are allocated in the first block.
        variables, start = (function.append_basic_block(name) for name in ("variables", "start"))
        builder = ir.IRBuilder(start)
        # Ended here, so that what is allocated in the first block is put before its end.
        ir.IRBuilder(variables).branch(start)
        code = statements(builder, names, intrinsics, known)
        code.inlined(body, [_call(builder, call)], {})
        builder.ret_void()
        if code.is_complete:
            return module
    raise Untyped(f"{body.__qualname__}: the types of its variables have no end")


def _call(builder: Any, call: Call) -> Operand:
    """Return the argument of the body: all values of the block, loaded unless they are known."""
    values = {}
    for index, (name, kind) in enumerate(call.arguments.items()):
        word = slot(builder, INT64.code(index))
        values[name] = TypedValue(kind, _from_word(builder, word, kind))
    known = {name: TypedValue(INT64, INT64.code(value)) for name, value in call.constants.items()}
    return Static(Record({**values, **known}, call.maps))


def _from_word(builder: Any, word: Any, kind: Kind | Pointer) -> Any:
    if isinstance(kind, Pointer):
        return address(builder, word, kind.code)
    if kind == FLOAT32:
        return builder.bitcast(builder.trunc(word, INT32.code), FLOAT32.code)
    return word


class Statements(Expressions):
    """Generator of the code of functions and of their statements."""

    _depth = 0

    def inlined(
        self,
        body: Callable[..., Any],
        arguments: Sequence[Operand],
        named: Mapping[str, Operand],
        consume: Callable[[Operand], None] | None = None,
    ) -> Operand:
        code = body.__code__
        if inspect.isgeneratorfunction(body) != (consume is not None):
            raise Untyped(f"{code.co_name}: loops are over functions that yield")
        if code.co_freevars:
            raise Untyped(f"{code.co_name} reads variables of a function around it")
        if self._depth == _MAX_DEPTH:
            raise Untyped(f"{code.co_name}: calls of inlined functions do not end")
        self._scopes += 1
        self._depth += 1
        outer = getattr(self, "scope", None)
        leave = self.builder.append_basic_block("leave")
        self.scope = scope = Scope(self._scopes, leave, body.__globals__, consume)
        given = _bound(body, arguments, named)
        for name, value in given.items():
            self.assign_name(name, value)
        tree = tree_of(code)
        try:
            check_assigned(tree, code.co_varnames + code.co_cellvars, given)
            self._statements(tree.body)
        except Untyped as error:
            raise error.within(code.co_filename) from error.__cause__
        self._jump(leave)
        self.builder.position_at_end(leave)
        result = self.read(_RESULT) if _RESULT in scope.variables else NOTHING
        self._depth -= 1
        if outer is not None:
            self.scope = outer
        return result

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if self.builder.block.is_terminated:
                return
            try:
                getattr(self, f"do_{type(statement).__name__.lower()}", self.unknown)(statement)
            except Untyped as error:
                raise error.at(statement.lineno) from error.__cause__
            except _MISUSES as error:
                text = f"cannot be compiled: {type(error).__name__}: {error}"
                raise Untyped(text).at(statement.lineno) from error

    def do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Yield) and node.value.value is not None:
            assert self.scope.consume is not None
            self.scope.consume(self.expression(node.value.value))
        elif isinstance(node.value, ast.YieldFrom):
            item = ast.Name("yielded", ast.Load())
            loop = ast.For(item, node.value.value, [ast.Expr(ast.Yield(item))], [])
            self.do_for(ast.fix_missing_locations(ast.copy_location(loop, node)))
        elif not isinstance(node.value, ast.Constant):
            self.expression(node.value)

    def do_pass(self, node: ast.Pass) -> None:
        pass

    def do_assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        if isinstance(value, Static):
            raise Untyped("only numbers, addresses and tuples of them can be assigned")
        for target in node.targets:
            self.assign(target, value)

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.expression(node.value))

    def do_augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            place = self.element(node.target)
            before = self.load_element(place)
        elif isinstance(node.target, ast.Name):
            before = number(self.loaded(self.scope.variables[node.target.id]))
        else:
            self.unknown(node.target)
        after = number(self.arithmetic(node.op, before, self.expression(node.value)))
        if isinstance(node.target, ast.Name):
            self.assign_name(node.target.id, after)
        else:
            self.store_element(place, after)

    def store_element(self, place: TypedValue, value: TypedValue) -> None:
        """Generate the store of a number to an element, of whose type it becomes."""
        self.no_bfloat16(place)
        self.store(converted(self.builder, value, place.kind).code, place.code)

    def store(self, value: Any, place: Any) -> None:
        """Generate the store of an LLVM value."""
        self.builder.store(value, place)

    def assign(self, target: ast.expr, value: Operand) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value)
        elif isinstance(target, ast.Tuple):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise Untyped(f"not {len(target.elts)} values")
            for each, part in zip(target.elts, value, strict=True):
                self.assign(each, part)
        elif isinstance(target, ast.Subscript):
            self.store_element(self.element(target), number(value))
        else:
            self.unknown(target)

    def do_if(self, node: ast.If) -> None:
        known = self.known_condition(node.test)
        if known is not None:
            self._statements(node.body if known else node.orelse)
            return
        then, otherwise, after = (
            self.builder.append_basic_block(name) for name in ("then", "otherwise", "after")
        )
        self.builder.cbranch(self.condition(node.test), then, otherwise)
        reached = False
        for block, body in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            self._statements(body)
            reached |= not self.builder.block.is_terminated
            self._jump(after)
        self._continue_at(after, reached)

    def do_while(self, node: ast.While) -> None:
        self._without_else(node)
        test, body, after = (
            self.builder.append_basic_block(name) for name in ("test", "body", "after")
        )
        self.builder.branch(test)
        self.builder.position_at_end(test)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        if endless:
            self.builder.branch(body)
        else:
            self.builder.cbranch(self.condition(node.test), body, after)
        self.builder.position_at_end(body)
        with self.in_loop(JumpTargets(test, after)) as loop:
            self._statements(node.body)
        self._jump(test)
        self._continue_at(after, not endless or loop.is_broken)

    def do_for(self, node: ast.For) -> None:
        self._without_else(node)
        if not isinstance(node.iter, ast.Call):
            raise Untyped("a loop is over a range, each or a function that yields")
        function, arguments, named = self.called(node.iter)
        if isinstance(function, InlinedBody):
            self._loop_over_yields(node, function.body, arguments, named)
        elif named:
            raise Untyped("a range has no named arguments")
        else:
            self._loop_over_range(node, function, arguments)

    def _loop_over_yields(
        self,
        node: ast.For,
        body: Callable[..., Any],
        arguments: Sequence[Operand],
        named: Mapping[str, Operand],
    ) -> None:
        """Generate a function's code, with the loop's body in place of every `yield`."""
        outer, after = self.scope, self.builder.append_basic_block("after")
        declared = False

        def consume(value: Operand) -> None:
            nonlocal declared
            inner, self.scope = self.scope, outer
            following = self.builder.append_basic_block("next")
            is_independent = any(loop.is_independent for loop in inner.loops)
            declared |= is_independent
            try:
                self._iteration(node, value, JumpTargets(following, after, False, is_independent))
            except Untyped as error:
                raise error.within(outer.names["__file__"]) from error.__cause__
            self.builder.position_at_end(following)
            self.scope = inner

        self.inlined(body, arguments, named, consume)
        self.builder.branch(after)
        self.builder.position_at_end(after)
        if declared:
            outer.last |= stored_names(node)

    def _iteration(self, node: ast.For, value: Operand, loop: JumpTargets) -> None:
        if loop.is_independent:
            check_independent(node)
        self.assign(node.target, value)
        with self.in_loop(loop):
            self._statements(node.body)
        self._jump(loop.following)

    def _loop_over_range(self, node: ast.For, function: Any, arguments: Sequence[Operand]) -> None:
        bounds = self.bounds(function, arguments)
        if function is intrinsics.each:
            self.independent(node, *bounds)
        else:
            self.counted(node, *bounds, is_independent=False)

    def independent(self, node: ast.For, start: Any, stop: Any, step: Any) -> None:
        """Generate a loop over `each`: its iterations in order."""
        self.counted(node, start, stop, step, is_independent=True)

    def counted(
        self, node: ast.For, start: Any, stop: Any, step: Any, *, is_independent: bool
    ) -> None:
        """Generate a loop over integers."""
        builder = self.builder
        place = variable(self.builder, INT64.code)
        builder.store(start, place)
        test, body, following, after = (
            builder.append_basic_block(name) for name in ("test", "body", "next", "after")
        )
        builder.branch(test)
        builder.position_at_end(test)
        index = builder.load(place)
        builder.cbranch(self.continues(index, stop, step), body, after)
        builder.position_at_end(body)
        loop = JumpTargets(following, after, is_independent=is_independent)
        self._iteration(node, TypedValue(INT64, index), loop)
        builder.position_at_end(following)
        builder.store(builder.add(builder.load(place), step, flags=["nsw"]), place)
        builder.branch(test)
        builder.position_at_end(after)
        if loop.is_independent:
            self.scope.last |= stored_names(node)

    def bounds(self, function: Any, arguments: Sequence[Operand]) -> tuple[Any, Any, Any]:
        """Return the LLVM values of start, stop and step of a range."""
        if function not in (range, intrinsics.each):
            raise Untyped("a loop is over a range, each or a function that yields")
        if function is intrinsics.each and len(arguments) == 1:
            raise Untyped("each has two or three arguments")
        given = [self.integer(argument) for argument in arguments]
        if not 1 <= len(given) <= 3:
            raise Untyped("a range has one to three arguments")
        zero, one = INT64.code(0), INT64.code(1)
        if len(given) == 1:
            return zero, given[0], one
        if len(given) == 3 and isinstance(given[2], ir.Constant) and given[2].constant == 0:
            raise Untyped("the step of a range is 0")
        return given[0], given[1], given[2] if len(given) > 2 else one

    def continues(self, number: Any, stop: Any, step: Any) -> Any:
        rises = self.builder.icmp_signed("<", number, stop)
        falls = self.builder.icmp_signed(">", number, stop)
        if isinstance(step, ir.Constant):
            return rises if step.constant > 0 else falls
        return self.builder.select(self.builder.icmp_signed(">", step, INT64.code(0)), rises, falls)

    @contextmanager
    def in_loop(self, loop: JumpTargets) -> Iterator[JumpTargets]:
        self.scope.loops.append(loop)
        yield loop
        self.scope.loops.pop()

    def do_break(self, node: ast.Break) -> None:
        self.scope.loops[-1].is_broken = True
        self.builder.branch(self.scope.loops[-1].after)

    def do_continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.scope.loops[-1].following)

    def do_return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.assign_name(_RESULT, self.expression(node.value))
        self.builder.branch(self.scope.leave)

    def _jump(self, block: Any) -> None:
        """Generate a jump to `block`, unless the current block has ended."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def _continue_at(self, block: Any, reached: bool) -> None:
        """Continue in a block, or where nothing leads to it with code that is never reached."""
        self.builder.position_at_end(block)
        if not reached:
            self.builder.unreachable()

    def _without_else(self, node: ast.For | ast.While) -> None:
        if node.orelse:
            raise Untyped("loops of native functions have no else")


def _bound(
    body: Callable[..., Any], arguments: Sequence[Operand], named: Mapping[str, Operand]
) -> Mapping[str, Operand]:
    """Return the arguments of a call by parameter; raises Untyped if they do not fit."""
    signature = inspect.signature(body)
    if any(each.default is not each.empty for each in signature.parameters.values()):
        raise Untyped(f"{body.__name__} has default values")
    try:
        bound = signature.bind(*arguments, **named)
    except TypeError as error:
        raise Untyped(f"{body.__name__}: {error}") from error
    return bound.arguments
