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
    """Lanes from float32 or int32 memory, or from bytes, widened to int32; the rest is 0."""
    raise TypeError("only inside a native function")


def gather_lanes(pointer: Any, position: int, step: int, count: int) -> Any:
    """Lanes from every `step`-th element of float32 memory; the rest is 0."""
    raise TypeError("only inside a native function")


def store_lanes(pointer: Any, position: int, vector: Any, count: int) -> None:
    """Lanes to float32 or int32 memory, or the lowest bytes of int32 lanes to bytes."""
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
