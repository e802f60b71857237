"""Programs, each one text, that MXNet 1.9.1 and mxrun run with their own modules.

A program calls `show` with numbers, texts and arrays. It ends, or with an error of the user's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from oracles.peer import MXNet
from peer_scripts import run_in

import mxrun
from mxrun.base.errors import UserError

Outcome: TypeAlias = tuple[list[Any], str]
"""Shown values, and `end` or `error`."""

_MXNET = """
import contextlib
import mxnet as mx

class Named(mx.kvstore.KVStore):
    "MXNet 1.9.1 has these methods under hidden names, and gives updaters string keys as bytes."

    barrier = mx.kvstore.KVStore._barrier

    def set_updater(self, updater):
        decoded = lambda key: key.decode() if isinstance(key, bytes) else key
        self._set_updater(lambda key, pushed, stored: updater(decoded(key), pushed, stored))

class kv:
    def create(kind):
        store = mx.kv.create(kind)
        store.__class__ = Named
        return store

def answer(request):
    shown = []
    def show(*values):
        for value in values:
            shown.append(value.asnumpy().tolist() if hasattr(value, "asnumpy") else value)
    names = dict(kv=kv, nd=mx.nd, cpu=mx.cpu, optimizer=mx.optimizer, show=show)
    try:
        # It prints warnings.
        with contextlib.redirect_stdout(sys.stderr):
            exec(request, names)
    except (mx.MXNetError, AssertionError, TypeError):
        return [shown, "error"]
    return [shown, "end"]
"""


def mxnets_outcomes(programs: Sequence[str]) -> list[Outcome]:
    """Return what MXNet does; skips the test without it."""
    return [(shown, end) for shown, end in run_in(MXNet, _MXNET, programs)]


def our_outcome(program: str) -> Outcome:
    """Return what mxrun does."""
    shown: list[Any] = []

    def show(*values: Any) -> None:
        for value in values:
            shown.append(value.asnumpy().tolist() if hasattr(value, "asnumpy") else value)

    modules = {"kv": mxrun.kv, "nd": mxrun.nd, "cpu": mxrun.cpu, "optimizer": mxrun.optimizer}
    try:
        exec(program, {**modules, "show": show})
    except UserError:
        return shown, "error"
    return shown, "end"


def assert_equal_outcomes(ours: Outcome, theirs: Outcome, tolerance: float = 1e-6) -> None:
    """Assert equal ends and values, numbers within a relative tolerance."""
    assert ours[1] == theirs[1]
    assert len(ours[0]) == len(theirs[0])
    for value, other in zip(ours[0], theirs[0], strict=True):
        if isinstance(value, str):
            assert value == other
        else:
            np.testing.assert_allclose(value, other, rtol=tolerance, atol=tolerance)
