"""LLVM code for loops, variables and declared functions, for generators of native code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

WORD = ir.IntType(64)


def variable(builder: Any, kind: Any, name: str = "") -> Any:
    """Allocate a variable of the function; LLVM keeps it in a register where it can."""
    with builder.goto_entry_block():
        return builder.alloca(kind, name=name)


def variables(builder: Any, values: list[Any]) -> list[Any]:
    """Allocate variables that change in a loop, with their first values."""
    places = [variable(builder, value.type) for value in values]
    for place, value in zip(places, values, strict=True):
        builder.store(value, place)
    return places


@contextmanager
def counted_loop(builder: Any, count: Any) -> Iterator[Any]:
    """Generate a loop whose index runs from 0 to `count` - 1; the context is its body."""
    before = builder.block
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    index = builder.phi(WORD)
    index.add_incoming(WORD(0), before)
    builder.cbranch(builder.icmp_signed("<", index, count), body, after)
    builder.position_at_end(body)
    yield index
    index.add_incoming(builder.add(index, WORD(1), flags=["nsw"]), builder.block)
    builder.branch(test)
    builder.position_at_end(after)
