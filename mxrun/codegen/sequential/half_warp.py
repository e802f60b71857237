"""Vectors on a graphics card: each of 16 threads, half a warp, has one lane in a register.

The threads compute scalars alike, so that their branches are the same. They may be at different
places of the code all the same: before a store all have read what it overwrites, and after it all
see it, by a barrier of the half-warp.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.codegen.llvm_target import call_function, special_register, type_name
from mxrun.codegen.vectors import LANES

_INDEX, _WORD, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()
# Threads of a warp, and the field of a shuffle by which it stays within half of them.
_WARP = 32
_WITHIN_HALVES = (_WARP - LANES) << 8
# Last lane that a shuffle reads, see `shfl.sync` in NVIDIA's description of PTX.
_LIMITS = {"bfly": _WARP - 1, "idx": _WARP - 1, "up": 0}


def lane(builder: Any, kind: Any, count: int = LANES) -> Any:
    """Return the number of the thread's lane in a vector of `count` lanes, as an integer type.

    The lanes of a vector of fewer than 16 are in several threads.
    """
    number = builder.and_(special_register(builder, "tid"), _INDEX(count - 1))
    return number if kind == _INDEX else builder.zext(number, kind)


def _members(builder: Any) -> Any:
    """Return the mask of the half-warp's threads in their warp."""
    half = builder.and_(special_register(builder, "tid"), _INDEX(LANES))
    return builder.shl(_INDEX(2**LANES - 1), half)


def wait(builder: Any) -> None:
    """Generate a barrier of the half-warp, before and after which its threads see all stores."""
    call_function(builder, "llvm.nvvm.bar.warp.sync", ir.VoidType(), [_members(builder)])


def store_lanes(builder: Any, value: Any, place: Any, mask: Any | None, count: int = LANES) -> None:
    """Store each thread's lane at its own place, if the thread is in the mask."""
    wait(builder)
    if count < LANES:
        is_first = builder.icmp_signed("<", lane(builder, _INDEX), _INDEX(count))
        mask = is_first if mask is None else builder.and_(mask, is_first)
    if mask is None:
        builder.store(value, place)
    else:
        with builder.if_then(mask):
            builder.store(value, place)
    wait(builder)


def store_scalar(builder: Any, value: Any, place: Any) -> None:
    """Store a value that all threads have, by the first one."""
    store_lanes(builder, value, place, None, 1)


def load_lanes(builder: Any, place: Any, mask: Any, rest: Any) -> Any:
    """Load each thread's lane from its own place; `rest` for threads outside the mask."""
    before = builder.block
    with builder.if_then(mask):
        loaded = builder.load(place)
        inside = builder.block
    found = builder.phi(loaded.type)
    found.add_incoming(rest, before)
    found.add_incoming(loaded, inside)
    return found


def shuffled(builder: Any, mode: str, value: Any, other: int) -> Any:
    """Return the value of lane `other` by mode idx, lane ^ other by bfly, lane - other by up."""
    if isinstance(value.type, ir.IntType) and value.type.width < _INDEX.width:
        wide = shuffled(builder, mode, builder.zext(value, _INDEX), other)
        return builder.trunc(wide, value.type)
    if value.type == _DOUBLE:
        word = builder.bitcast(value, _WORD)
        halves = [builder.trunc(builder.lshr(word, _WORD(at)), _INDEX) for at in (0, 32)]
        low, high = (builder.zext(shuffled(builder, mode, half, other), _WORD) for half in halves)
        return builder.bitcast(builder.or_(low, builder.shl(high, _WORD(32))), _DOUBLE)
    name = f"llvm.nvvm.shfl.sync.{mode}.{type_name(value.type)}"
    limits = _INDEX(_WITHIN_HALVES | _LIMITS[mode])
    return call_function(
        builder, name, value.type, [_members(builder), value, _INDEX(other), limits]
    )


def joined(builder: Any, join: Any, value: Any, count: int) -> Any:
    """Combine the upper half of the lanes with the lower until one is left, which all threads get.

    The first lane has the order of the processors' vectors.
    """
    while count > 1:
        count //= 2
        value = join(builder, value, shuffled(builder, "bfly", value, count))
    return shuffled(builder, "idx", value, 0)


def store_columns(
    builder: Any, vectors: list[Any], pointer: Any, step: Any, count: Any, mask: Any
) -> None:
    """Store a row of each thread in the mask: lane i of the first `count` vectors to element i.

    The rows begin `step` elements apart. All are loaded before the first is stored.
    """
    wait(builder)
    first = builder.mul(lane(builder, _WORD), step)
    for number, vector in enumerate(vectors):
        is_there = builder.icmp_signed("<", _WORD(number), count)
        with builder.if_then(builder.and_(mask, is_there)):
            builder.store(vector, builder.gep(pointer, [builder.add(first, _WORD(number))]))
    wait(builder)
