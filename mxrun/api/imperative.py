"""Imperative face: `mxrun.nd`, `autograd` and `random`, with the operator library loaded."""

from __future__ import annotations

from mxrun import library
from mxrun.base.context import Context, cpu, current_context
from mxrun.imperative import autograd
from mxrun.imperative import operators as nd
from mxrun.imperative import sampling as random
from mxrun.imperative.ndarray import NDArray

__all__ = ["Context", "NDArray", "autograd", "cpu", "current_context", "nd", "random"]

library.load()
