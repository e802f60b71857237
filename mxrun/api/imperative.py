"""Imperative face: `mxrun.nd`, `sym`, `autograd`, `kv`, ..., with the operator library loaded."""

from __future__ import annotations

from mxrun import kvstore, library
from mxrun.base.context import Context, cpu, current_context
from mxrun.imperative import operators as nd
from mxrun.imperative import optimizer
from mxrun.imperative import symbolic as sym
from mxrun.imperative.arrays import sampling as random
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.differentiation import autograd

__all__ = [
    "Context",
    "NDArray",
    "autograd",
    "cpu",
    "current_context",
    "kv",
    "kvstore",
    "nd",
    "optimizer",
    "random",
    "sym",
    "symbol",
]

kv = kvstore
symbol = sym

library.load()
