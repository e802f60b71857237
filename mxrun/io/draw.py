"""Synthetic records drawn from the named random streams of `mxrun.runtime.random`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mxrun.base.tensor import Shape
from mxrun.runtime import random


def draw_bytes(seed: int, name: str, shape: Shape) -> NDArray[np.uint8]:
    """Return uniform uint8: the bytes of the stream's 64-bit words, lowest byte first."""
    count = math.prod(shape)
    bits = random.raw(seed, name, (count + 7) // 8).astype("<u8", copy=False)
    return bits.view(np.uint8)[:count].reshape(shape)


def draw_integers(seed: int, name: str, shape: Shape, below: int) -> NDArray[np.int32]:
    """Return int32 in 0 .. below-1: each 64-bit word modulo `below`, with a bias under below /
    2^64.
    """
    bits = random.raw(seed, name, math.prod(shape))
    bits %= np.uint64(below)
    return bits.astype(np.int32).reshape(shape)


def draw_uniform(seed: int, name: str, shape: Shape) -> NDArray[np.float64]:
    """Return uniform float64 in -1 .. 1."""
    return 2 * random.uniform(seed, name, shape) - 1


def draw_normal(seed: int, name: str, shape: Shape) -> NDArray[np.float64]:
    """Return standard normal float64."""
    return random.normal(seed, name, shape)
