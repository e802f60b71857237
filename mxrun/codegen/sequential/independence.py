"""Independence: what `each` declares of a loop's iterations, as far as the source shows it.

Refused are a jump out of the loop, a variable whose value comes from an earlier iteration, an
element that every iteration writes, and one that a neighbouring iteration reads or writes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.assignment import Paths, stored


def stored_names(loop: ast.For) -> frozenset[str]:
    """Return the variables that a loop assigns, its own one among them."""
    return frozenset(stored(loop))


def check_independent(loop: ast.For) -> None:
    """Raise Untyped, with the line, if an iteration visibly depends on another one."""
    own = stored_names(loop)
    for jump in _jumps_out(loop.body):
        raise Untyped("a jump out of independent iterations").at(jump.lineno)
    before = "{} has the value of another one of independent iterations"
    Paths(own, before).block(loop.body, frozenset(stored(loop.target)))
    offsets: dict[str, set[int | None]] = {}
    elements = list(_elements(loop))
    for memory, index, is_written in elements:
        if is_written and own.isdisjoint({*_names(memory), *_names(index)}):
            text = f"all of the independent iterations write {ast.unparse(memory)}"
            raise Untyped(f"{text}[{ast.unparse(index)}]").at(index.lineno)
        if is_written:
            offsets.setdefault(ast.dump(memory), set()).add(_offset(index, loop.target))
    for memory, index, _ in elements:
        offset = _offset(index, loop.target)
        written = offsets.get(ast.dump(memory), set())
        if offset is not None and written - {offset, None}:
            text = "independent iterations share elements of"
            raise Untyped(f"{text} {ast.unparse(memory)}").at(index.lineno)


def _jumps_out(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the `return` statements, and each `break` that is not that of a loop within."""
    for statement in body:
        yield from (each for each in ast.walk(statement) if isinstance(each, ast.Return))
        if isinstance(statement, ast.Break):
            yield statement
        if isinstance(statement, ast.If):
            yield from _jumps_out([*statement.body, *statement.orelse])


def _elements(loop: ast.For) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """Yield address and index of every element, or vector, and whether it is written."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript):
            yield node.value, node.slice, isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("load_lanes", "store_lanes"):
            memory, index, *_ = node.args
            yield memory, index, ast.unparse(node.func) == "store_lanes"


def _names(node: ast.expr) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _offset(index: ast.expr, variable: ast.expr) -> int | None:
    """Return c of an index i + c or i - c, where i is the loop's variable; None for others."""
    match index, variable:
        case ast.Name(name), ast.Name(own) if name == own:
            return 0
        case ast.BinOp(ast.Name(name), ast.Add(), ast.Constant(int(c))), ast.Name(own) if (
            name == own
        ):
            return c
        case ast.BinOp(ast.Name(name), ast.Sub(), ast.Constant(int(c))), ast.Name(own) if (
            name == own
        ):
            return -c
    return None
