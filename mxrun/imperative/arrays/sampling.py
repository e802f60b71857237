"""Arrays of random numbers, `mxrun.nd.random`: drawn from the context's random numbers.

The same calls after the same `seed` give the same numbers, on every context of that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.context import Context, current_context
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.copying import push, store
from mxrun.imperative.arrays.creation import DType, ShapeLike, empty
from mxrun.imperative.calls.random import STATE, next_state, seed
from mxrun.runtime.random import Stream

__all__ = ["normal", "randn", "seed", "uniform"]

Numbers = npt.NDArray[Any]


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: ShapeLike = (1,),
    dtype: DType = None,
    ctx: Context | None = None,
    out: Any = None,
) -> Any:
    """Return numbers uniformly distributed in [low, high); out: an array that is filled instead."""

    def numbers(stream: Stream, count: int) -> Numbers:
        return low + (high - low) * (_unit(stream.bits(count)))

    return _drawn("random_uniform", numbers, shape, dtype, ctx, out)


def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: ShapeLike = (1,),
    dtype: DType = None,
    ctx: Context | None = None,
    out: Any = None,
) -> Any:
    """Return normally distributed numbers of mean `loc` and standard deviation `scale`.

    out: an array that is filled instead.
    """

    def numbers(stream: Stream, count: int) -> Numbers:
        # Box and Muller (1958), as in mxrun.runtime.random.
        pairs = (count + 1) // 2
        units = _unit(stream.bits(2 * pairs))
        radius = np.sqrt(-2.0 * np.log1p(-units[:pairs]))
        angle = 2.0 * math.pi * units[pairs:]
        drawn = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
        return loc + scale * drawn

    return _drawn("random_normal", numbers, shape, dtype, ctx, out)


def randn(
    *shape: int,
    loc: float = 0.0,
    scale: float = 1.0,
    dtype: DType = None,
    ctx: Context | None = None,
) -> Any:
    """Return normally distributed numbers, as `normal` with the sizes as arguments."""
    return normal(loc, scale, shape or (1,), dtype, ctx)


def _unit(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    """Return float64 in [0, 1) that are multiples of 2^-24, so that float32 keeps them below 1."""
    units: npt.NDArray[np.float64] = (bits >> np.uint32(8)).astype(np.float64)
    units *= 2.0**-24
    return units


def _drawn(
    name: str,
    numbers: Callable[[Stream, int], Numbers],
    shape: ShapeLike,
    dtype: DType,
    ctx: Context | None,
    out: Any,
) -> Any:
    context = (ctx or current_context()) if out is None else out.context
    target = empty(shape, context, dtype) if out is None else out
    state = NDArrayBase(next_state(target.chunk), STATE.shape, STATE.dtype)

    def filled() -> None:
        key, step, part = map(int, state.chunk.device.read(state.handle, STATE))
        drawn = numbers(Stream(key, step, part), target.size)
        store(target, drawn.reshape(target.shape))

    push(name, filled, [state], target, replaces=True)
    return target
