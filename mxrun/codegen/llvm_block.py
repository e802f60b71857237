"""LLVM code that reads an argument block (see `jit`): its slots, and the calling thread's share."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.codegen.arguments import HEADER_SLOTS

_WORD, _INDEX = ir.IntType(64), ir.IntType(32)
# A thread's share is a multiple of so many elements.
_GRAIN = 16


def slot(builder: Any, block: Any, index: Any) -> Any:
    """Load argument `index`, an LLVM value, as 64 bits."""
    return builder.load(builder.gep(block, [builder.add(index, _WORD(HEADER_SLOTS))]))


def share(builder: Any, block: Any, count: Any) -> tuple[Any, Any]:
    """Compute the calling thread's part [begin, end) of `count` elements, in multiples of 16."""
    number, team = member(builder, block)
    grain = _WORD(_GRAIN)
    rounded = builder.add(count, builder.sub(builder.mul(team, grain), _WORD(1)))
    chunk = builder.mul(builder.sdiv(rounded, builder.mul(team, grain)), grain)
    begin = smaller(builder, count, builder.mul(number, chunk))
    return begin, smaller(builder, count, builder.add(begin, chunk))


def member(builder: Any, block: Any) -> tuple[Any, Any]:
    """Return the calling thread's number and the size of its team."""
    return _runtime(builder, block, 0, 0), _runtime(builder, block, 1, 1)


def smaller(builder: Any, left: Any, right: Any) -> Any:
    """Return the smaller of two integers."""
    return builder.select(builder.icmp_signed("<", left, right), left, right)


def _runtime(builder: Any, block: Any, position: int, otherwise: int) -> Any:
    """Call an OpenMP function from the block's header; without one the result is `otherwise`."""
    address = builder.load(builder.gep(block, [_WORD(position)]))
    before = builder.block
    present = builder.icmp_unsigned("!=", address, _WORD(0))
    with builder.if_then(present):
        kind = ir.FunctionType(_INDEX, [])
        answer = builder.call(builder.inttoptr(address, kind.as_pointer()), [])
        number = builder.sext(answer, _WORD)
        call_block = builder.block
    result = builder.phi(_WORD)
    result.add_incoming(_WORD(otherwise), before)
    result.add_incoming(number, call_block)
    return result
