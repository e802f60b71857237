"""Sixteen numbers at once, in native functions whose loops LLVM does not vectorise itself.

A loop over a few channels with a choice in it, or several tensors that could overlap, becomes
scalar code or vector code behind checks that cost more than the work. These names, for bodies of
`jit.native`, say the vector code instead. A vector has 16 lanes of float32 or int32; memory is
read and written at `position` of a pointer for the first `count` lanes, all 16 where it is more.
"""

from __future__ import annotations

from typing import Any

LANES = 16


def lanes(value: float) -> Any:
    """A vector of float32 (or of int32) whose lanes all are `value`, a float32 (or int64)."""
    raise TypeError("only inside a native function")


def load_lanes(pointer: Any, position: int, count: int) -> Any:
    """Lanes from memory; the rest is 0.

    float32 and int32 come as they are, bfloat16 widened to float32, bytes to int32.
    """
    raise TypeError("only inside a native function")


def gather_lanes(pointer: Any, position: int, step: int, count: int) -> Any:
    """Lanes from every `step`-th element of float32 memory; the rest is 0."""
    raise TypeError("only inside a native function")


def store_lanes(pointer: Any, position: int, vector: Any, count: int) -> None:
    """Lanes to memory: float32 or int32 as they are, the lowest bytes of int32 lanes to bytes.

    float32 goes to bfloat16 rounded to the nearest, to an even one of two; NaN stays NaN.
    """
    raise TypeError("only inside a native function")


def stored_lanes(pointer: Any, vector: Any) -> Any:
    """float32 lanes as `load_lanes` would give them back once they were stored there."""
    raise TypeError("only inside a native function")


def above(left: Any, right: Any) -> Any:
    """Where left > right, which NaN is not on either side: a mask of lanes."""
    raise TypeError("only inside a native function")


def exceeds(left: Any, right: Any) -> Any:
    """Where left > right, or left is NaN and right is not: a mask of lanes."""
    raise TypeError("only inside a native function")


def equals(left: Any, right: Any) -> Any:
    """Where two int32 vectors are equal: a mask of lanes."""
    raise TypeError("only inside a native function")


def choose(mask: Any, chosen: Any, otherwise: Any) -> Any:
    """Lanes of `chosen` where the mask is set, else of `otherwise`."""
    raise TypeError("only inside a native function")


def add_lanes(left: Any, right: Any) -> Any:
    """The sum of two vectors of one kind."""
    raise TypeError("only inside a native function")


def subtract_lanes(left: Any, right: Any) -> Any:
    """The difference of two vectors of float32."""
    raise TypeError("only inside a native function")


def multiply_lanes(left: Any, right: Any) -> Any:
    """The product of two vectors of float32."""
    raise TypeError("only inside a native function")


def fetch(pointer: Any, position: int) -> None:
    """Ask for the line of memory where `position` is, if there is any, that is needed soon."""
    raise TypeError("only inside a native function")


def pair_lanes(low: Any, high: Any) -> Any:
    """Two vectors of float32 as bfloat16 memory has them, lane by lane beside one another.

    Only to be stored, as float32.
    """
    raise TypeError("only inside a native function")


def transpose_lanes(
    pointer: Any,
    position: int,
    stride: int,
    rows: int,
    columns: int,
    output: Any,
    to: int,
    step: int,
) -> None:
    """output[to + j * step + i] = pointer[position + i * stride + j], float32.

    For each row i below `rows` and each column j below `columns`, of which there are one at least;
    16 of either where it is more.
    """
    raise TypeError("only inside a native function")
