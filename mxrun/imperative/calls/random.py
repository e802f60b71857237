"""Random numbers of imperative operators: the stream of their context, in the order of calls."""

from __future__ import annotations

import operator

from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.locks import new_lock
from mxrun.base.tensor import TensorSpec
from mxrun.device.resources import new_random_resource
from mxrun.imperative.arrays.chunk import Chunk
from mxrun.runtime.engine.interface import Engine, EngineOperator, RunContext
from mxrun.runtime.resources import RandomResource

STATE = TensorSpec((3,), "int64")
"""State that a random operator reads: key, step and part."""

_FIRST_SEED = 0

_guard = new_lock()
_seed = _FIRST_SEED
_seeds: dict[Context, int] = {}


class _Stream:
    """Random numbers of a context on an engine, from the present seed on."""

    def __init__(self, engine: Engine, context: Context) -> None:
        self.engine = engine
        self.resource = new_random_resource(engine, context, _seeds.get(context, _seed))


_streams: dict[Context, _Stream] = {}


def seed(value: int, context: Context | None = None) -> None:
    """Begin the random numbers of a context, or of all contexts, anew from a seed (MXNet's seed).

    The same calls after the same seed draw the same numbers, whatever the number of workers. Raises
    UserError for a seed that is no integer.
    """
    global _seed
    try:
        value = operator.index(value)
    except TypeError:
        got = f"{value!r} ({type(value).__name__})"
        raise UserError(Diagnostic("seed", None, "an integer", got)) from None
    with _guard:
        if context is None:
            _seed = value
            _seeds.clear()
            _streams.clear()
        else:
            _seeds[context] = value
            _streams.pop(context, None)


def _resource_of(engine: Engine, context: Context) -> RandomResource:
    """Return the numbers of a context; they begin anew with another engine."""
    with _guard:
        stream = _streams.get(context)
        if stream is None or stream.engine is not engine:
            stream = _streams[context] = _Stream(engine, context)
        return stream.resource


def next_state(chunk: Chunk) -> Chunk:
    """Return the state for the next random operator on a chunk's device and engine.

    Operators that have drawn their states do not wait for each other.
    """
    resource = _resource_of(chunk.engine, chunk.context)
    state = chunk.another(STATE.nbytes)
    device, target = state.device, state.handle

    def draw(run_context: RunContext) -> None:
        resource.advance()
        device.write(target, device.read(resource.place, STATE))

    chunk.engine.run_or_push(
        EngineOperator(
            draw,
            (),
            # It advances the numbers whether or not that failed for the call before.
            (state.variable, resource.variable),
            name="random state",
            context=chunk.context,
        )
    )
    return state
