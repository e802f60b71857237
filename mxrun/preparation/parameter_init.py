"""Initial contents of a plan's pinned tensors."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.update_rule import GRADIENT_SCALE, SCHEDULE
from mxrun.runtime.random import key_of
from mxrun.train.initializer import initial_value, initialise


def zero_pinned(executor: Executor, built: ModelDefinition) -> None:
    """Set all pinned tensors to zero, except those that a loop expects otherwise at its start."""
    plan = executor.plan
    executor.device.fill(executor.memory, 0, plan.pinned_bytes, 0)
    if RANDOM_STATE in plan.specs:
        executor.tensor(RANDOM_STATE).write((key_of(f"{built.options.seed}"), 0, 0))
    if SCHEDULE in plan.specs:
        executor.tensor(SCHEDULE).write((built.training.optimizer.lr, 1, 1))
    if GRADIENT_SCALE in plan.specs:
        executor.tensor(GRADIENT_SCALE).write((built.full_scale,))


def initialise_pinned(executor: Executor, built: ModelDefinition) -> None:
    """Set every parameter and auxiliary state of the plan to its initialiser's value."""
    for name in built.model.learned.keys() & executor.plan.specs.keys():
        initializer = built.training.initializers[name]
        mirror = executor.tensor(name).mirror()
        initialise(mirror.array, initializer, name, built.options.seed)
        mirror.store()


def initial_array(name: str, built: ModelDefinition) -> npt.NDArray[Any]:
    """Return the initialiser's value of a parameter or auxiliary state."""
    initializer, shape = built.training.initializers[name], built.model.learned[name].shape
    return initial_value(initializer, name, shape, built.options.seed)


def initial_arrays(built: ModelDefinition) -> dict[str, npt.NDArray[Any]]:
    """Return the initial values of all parameters and auxiliary states of a run."""
    return {name: initial_array(name, built) for name in built.model.learned}
