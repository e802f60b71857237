"""Random numbers of imperative operators: one state per context, drawn in the order of calls."""

from __future__ import annotations

import threading

import numpy as np

from mxrun.base.context import Context
from mxrun.imperative.chunk import Chunk
from mxrun.runtime.random import key_of

_STATE_BYTES = 24
_FIRST_SEED = 0


class _Counter:
    """Key of a context's numbers, and the number of the last call that drew some."""

    def __init__(self, context: Context, seed: int) -> None:
        self.key = key_of(f"{seed}/{context}")
        self.calls = 0


_guard = threading.Lock()
_counters: dict[Context, _Counter] = {}
_seed = _FIRST_SEED


def seed(value: int, context: Context | None = None) -> None:
    """Begin the random numbers of a context, or of all contexts, anew from a seed (MXNet's seed).

    The same calls after the same seed draw the same numbers, whatever the number of workers.
    """
    global _seed
    with _guard:
        if context is None:
            _seed = value
            _counters.clear()
        else:
            _counters[context] = _Counter(context, value)


def next_state(chunk: Chunk) -> Chunk:
    """Return the state that the next random operator on a chunk's device reads: key, call, part."""
    context = chunk.context
    with _guard:
        counter = _counters.get(context)
        if counter is None:
            counter = _counters[context] = _Counter(context, _seed)
        counter.calls += 1
        values = np.array([counter.key, counter.calls, 0], np.int64)
    state = chunk.another(_STATE_BYTES)
    state.device.write(state.handle, values)
    return state
