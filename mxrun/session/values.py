"""What the pinned tensors of a plan hold before the first step."""

from __future__ import annotations

from mxrun.build import Built
from mxrun.executor.executor import Executor
from mxrun.graph.passes.lower import RANDOM_STATE
from mxrun.graph.passes.updates import SCHEDULE
from mxrun.runtime.random import key_of
from mxrun.train.initializer import initial_value


def clear(executor: Executor, built: Built) -> None:
    """Every pinned tensor zero, but what a loop finds there before its first step."""
    plan = executor.plan
    for block in plan.pinned:
        executor.array(block.name)[...] = 0
    if RANDOM_STATE in plan.specs:
        executor.array(RANDOM_STATE)[0] = key_of(f"{built.config.seed}")
    if SCHEDULE in plan.specs:
        executor.array(SCHEDULE)[...] = (built.training.optimizer.lr, 1, 1)


def draw(executor: Executor, built: Built) -> None:
    """Give every parameter and auxiliary state its initializer's value."""
    for name, spec in built.model.learned.items():
        initializer = built.training.initializers[name]
        executor.array(name)[...] = initial_value(initializer, name, spec.shape, built.config.seed)
