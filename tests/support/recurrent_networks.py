"""Networks with recurrences: configs, and all results of one evaluation and one training step."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from layer_configs import config_file

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.device.registry import device_kind
from mxrun.executor.executor import Executor
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol
from mxrun.planner.plan import Plan
from mxrun.preparation.planning import load

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

HEAD = """\
network:
  inputs: {inputs}
  layers:
{layers}data:
  batch_size: 4
  train: {{dataset: synthetic, split: train, records: 8, classes: 3}}
train: {{epochs: 1, optimizer: {{sgd: {{lr: 0.1}}}}}}
"""
# A recurrence of one layer, with three features a step.
CELL = """\
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [5]}}
        layers:
          - Concat: {name: both, inputs: [x, h]}
          - FullyConnected: {name: fc, num_hidden: 5}
          - Activation: {name: next, act_type: tanh}
        outputs: [next]
"""
LOSS = """\
    - FullyConnected: {name: logits, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
"""
# Every time of every record has a target of its own.
TARGETS = "    - LinearRegressionOutput: {name: loss, label: target}\n"


def config(inputs: str, layers: str) -> str:
    """Return a config of layers, with a batch of 4."""
    return "name: net\n" + HEAD.format(inputs=inputs, layers=layers)


def symbol_of(folder: Path, text: str, *overrides: str) -> tuple[Symbol, dict[str, TensorSpec]]:
    """Return the symbol of a config and the specs of its inputs."""
    path = config_file(folder, text)
    model = load(path, ["threads=2", *overrides]).model
    return model.symbol, dict(model.inputs)


def drawn(name: str, spec: TensorSpec) -> Array:
    """Return values for a tensor that depend on its name alone."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if spec.dtype == "float32":
        return (0.5 * random.normal(size=spec.shape)).astype(np.float32)
    return random.integers(0, 3, spec.shape)


def plan_of(
    symbol: Symbol,
    inputs: Mapping[str, TensorSpec],
    gradients: tuple[str, ...] | None = None,
    kind: str = "cpu",
    **options: Any,
) -> Plan:
    """Return a plan whose results are the gradients, by default of all parameters."""
    if gradients is None:
        gradients = tuple(name for name in symbol.list_arguments() if name not in inputs)
    request = CompileRequest(
        inputs=inputs, gradients=gradients, device=device_kind(kind).describe(0, 2), **options
    )
    return compile_plan(symbol, request)


def results_of(
    plan: Plan, given: Mapping[str, Array] | None = None, poisoned: bool = False
) -> Arrays:
    """Return all results of an evaluation and of a training step, by phase and name.

    given: values of inputs; all other tensors are as `drawn`.
    """
    executor = Executor(plan, device_kind(plan.device.family)(plan.device))
    for name, spec in plan.specs.items():
        if name == "random:state":
            executor.tensor(name).write(np.array([5, 6, 0]))
        else:
            executor.tensor(name).write((given or {}).get(name, drawn(name, spec)))
    found = {}
    for phase in (EVALUATE, TRAIN):
        (executor.run_poisoned if poisoned else executor.run)(phase)
        for name in plan.phases[phase].graph.results:
            found[f"{phase} {name}"] = executor.result(phase, name).read()
    return found


def outcome(
    folder: Path,
    text: str,
    *overrides: str,
    given: Mapping[str, Array] | None = None,
    **options: Any,
) -> Arrays:
    """Return all results of a config's network."""
    plan = plan_of(*symbol_of(folder, text, *overrides), **options)
    return results_of(plan, given)


def assert_same_bits(first: Arrays, second: Arrays) -> None:
    """Assert that all results are equal; zeros may differ in their sign."""
    assert first.keys() == second.keys()
    different = {
        name: float(np.abs(first[name] - second[name]).max())
        for name in first
        if not np.array_equal(first[name], second[name])
    }
    assert not different
