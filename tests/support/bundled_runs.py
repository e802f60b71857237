"""Executors of bundled configs, initialised as in a run."""

from __future__ import annotations

from typing import Any

from executors import cpu, executor_for

from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.config.bundled import find_config
from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.update_rule import GRADIENT_SCALE, SCHEDULE
from mxrun.preparation.planning import load
from mxrun.train.initializer import initial_value

BUNDLED = ("mlp_mnist", "lenet_mnist", "digits_lenet")


def bundled(config: str, *overrides: str, batch: int | None = None) -> ModelDefinition:
    """Return a bundled config on synthetic records: five training batches, the last one padded."""
    synthetic = (
        "data.train={dataset: synthetic, split: train, records: 300, shuffle: true}",
        "data.eval={dataset: synthetic, split: test, records: 100}",
        "threads=2",
    )
    return load(find_config(config), [*synthetic, *overrides], batch)


def executor_of(built: ModelDefinition, **options: Any) -> Executor:
    """The network bound with other planning options than a run's; first values as a run's.

    `gradients=True` asks for all gradients as results, and for no updates.
    """
    names = tuple(built.model.parameters)
    gradients = options.pop("gradients", False)
    request = CompileRequest(
        inputs=built.model.inputs,
        shapes=built.model.shapes,
        rules={} if gradients else built.training.rules,
        gradients=names if gradients else (),
        device=cpu(2),
        **options,
    )
    executor = executor_for(compile_plan(built.model.symbol, request))
    for name, spec in built.model.parameters.items():
        value = initial_value(
            built.training.initializers[name], name, spec.shape, built.options.seed
        )
        executor.tensor(name).write(value)
    if SCHEDULE in executor.plan.specs:
        executor.tensor(SCHEDULE).write((built.training.optimizer.lr, 0, 0))
        executor.tensor(GRADIENT_SCALE).write((built.full_scale,))
    return executor
