"""Temporary space and random numbers on the process's devices, by context."""

from __future__ import annotations

from mxrun.base.context import Context
from mxrun.base.once import once
from mxrun.base.tensor import TensorSpec, align
from mxrun.device.storage import device_of, storage_pools
from mxrun.operator.launch import Handle
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.resources import RandomResource, TempSpace

_RANDOM_STATE = TensorSpec((3,), "int64")


@once
def temp_space_of(context: Context) -> TempSpace:
    """Return the temporary space of functions on a context."""
    return TempSpace(storage_pools().of(context))


def new_random_resource(engine: Engine, context: Context, seed: int) -> RandomResource:
    """Return a new stream of random numbers, with a state on the context's device."""
    device = device_of(context)
    place = Handle(device.allocate(align(_RANDOM_STATE.nbytes)), 0)
    state = device.tensor(place, _RANDOM_STATE).mirror()
    return RandomResource(engine, context, seed, state, place)
