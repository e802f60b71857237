"""ResNet-20 on synthetic CIFAR images: five training steps, compared with the peers.

All start from the same parameters and statistics and read the same batches; the peers compute in
float64. With ReLUs, results agree only if mxrun computes in float64 too: of the millions of values
in a step, rounding to float32 moves some across zero, and each such value changes gradients by far
more than rounding (MXNet's own results in float32 and float64 differ as much). Therefore the
kernels of normal runs, which compute in float32, are compared with smooth activations instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import residual
from commands import result
from executors import cpu, executor_for
from oracles.peer import MXNet, Peer, PyTorch
from oracles.sgd import SGD

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.config.bundled import find_config
from mxrun.device.cpu.onednn import library as onednn
from mxrun.executor.executor import Executor
from mxrun.graph.infer import infer
from mxrun.graph.node import NodeEntry
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, load_json
from mxrun.graph.update_rule import UpdateRule
from mxrun.preparation.planning import load, plan_for
from mxrun.train.initializer import Msra, initial_value, initializer_for

pytestmark = pytest.mark.commands

PEERS: list[type[Peer]] = [MXNet, PyTorch]
STEPS = 5
RATE, DECAY = 0.05, 1e-4
TOLERANCE = 1e-4
SYNTHETIC = (
    "data.train={dataset: synthetic, split: train, records: 256}",
    "data.eval={dataset: synthetic, split: test, records: 128}",
    "threads=2",
)

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """Precision of mxrun, and the activation."""

    activation: str
    batch: int
    dtype: str
    implementation: str

    @property
    def symbol(self) -> Symbol:
        return residual.resnet20(activation=self.activation)

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        data = TensorSpec((self.batch, 3, 32, 32), self.dtype)
        return {"data": data, "label": TensorSpec((self.batch,), "int32")}

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(n for n in self.symbol.list_arguments() if n not in self.inputs)


CASES = {
    "float64": Case("relu", 4, "float64", "numpy"),
    "float32": Case("softrelu", 16, "float32", "auto"),
}


@dataclass(frozen=True, eq=False)
class Training:
    """Variables before and after the steps, the batches plus one, and the gradients of the last
    one.
    """

    before: Arrays
    after: Arrays
    batches: Arrays
    gradients: Arrays

    @property
    def last(self) -> Arrays:
        """The batch after the steps."""
        return {name: array[STEPS] for name, array in self.batches.items()}


@cache
def trained(case: Case) -> Training:
    """Train with mxrun, from the initial values of the config."""
    before, batches = first_values(case), synthetic_batches(case)
    executor = bound(case, before, rules={name: rule(case, name) for name in case.parameters})
    for step in range(STEPS):
        run(executor, {name: array[step] for name, array in batches.items()})
    after = {name: executor.tensor(name).read() for name in before}
    executor = bound(case, after, gradients=case.parameters, phases=(TRAIN,))
    run(executor, {name: array[STEPS] for name, array in batches.items()})
    gradients = {name: executor.result(TRAIN, f"{name}_grad").read() for name in case.parameters}
    return Training(before, after, batches, gradients)


def first_values(case: Case) -> Arrays:
    shapes = {name: spec.shape for name, spec in case.inputs.items()}
    symbol, default = case.symbol, Msra(slope=0, factor_type="in")
    inference = infer(symbol.heads, shapes)
    return {
        node.name: initial_value(
            initializer_for(node.name, default),
            node.name,
            inference.spec(NodeEntry(node)).shape,
            seed=0,
        )
        for node in symbol.nodes
        if node.is_variable and node.name not in shapes
    }


def synthetic_batches(case: Case) -> Arrays:
    """Return synthetic batches, stacked along a first axis."""
    random = np.random.default_rng(5)
    shapes = {name: (STEPS + 1, *spec.shape) for name, spec in case.inputs.items()}
    return {
        "data": random.standard_normal(shapes["data"]).astype("float32"),
        "label": random.integers(0, 10, shapes["label"]).astype("int32"),
    }


def rule(case: Case, name: str) -> UpdateRule:
    decay = DECAY if name.endswith(("_weight", "_gamma")) else 0.0
    rescale = 1 / case.batch
    parameters = {"lr": RATE, "momentum": 0.9, "wd": decay, "rescale_grad": rescale}
    return UpdateRule("sgd_mom_update", parameters)


def bound(case: Case, values: Mapping[str, Array], **options: Any) -> Executor:
    request = CompileRequest(
        case.inputs, device=cpu(2), implementation=case.implementation, **options
    )
    executor = executor_for(compile_plan(case.symbol, request))
    for block in executor.plan.pinned:
        executor.tensor(block.name).write(values.get(block.name, 0))
    return executor


def run(executor: Executor, batch: Mapping[str, Array]) -> None:
    for name, array in batch.items():
        executor.tensor(name).write(array)
    executor.run(TRAIN)


def as_float64(arrays: Mapping[str, Array]) -> Arrays:
    return {name: array.astype("float64") for name, array in arrays.items()}


def distance(got: Array, expected: Array) -> float:
    """The norm of the difference, relative to the norm."""
    assert got.shape == expected.shape
    length = float(np.linalg.norm(expected))
    assert length > 0
    return float(np.linalg.norm(got - expected)) / length


@pytest.mark.parametrize("kind", PEERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", CASES)
def test_O1_gradients_after_five_steps_equal_the_peers(name: str, kind: type[Peer]) -> None:
    """Each side trains alone, then differentiates one more batch; statistics agree as well."""
    reason = kind.unavailable()
    if reason is not None:
        pytest.skip(reason)
    case = CASES[name]
    ours, text = trained(case), case.symbol.tojson()
    sgd = SGD(lr=RATE, momentum=0.9, wd=DECAY, rescale_grad=1 / case.batch)
    steps = {name: array[:STEPS] for name, array in ours.batches.items()}
    with kind() as peer:
        theirs = peer.train(text, as_float64(ours.before), as_float64(steps), sgd)
        there = peer.run_symbol(text, {**theirs, **as_float64(ours.last)})
    assert theirs.keys() == ours.before.keys()
    for variable, value in theirs.items():
        assert distance(ours.before[variable], value) > 10 * TOLERANCE, variable
        assert distance(ours.after[variable], value) <= TOLERANCE, variable
    assert set(ours.gradients) == set(there.gradients) - set(case.inputs)
    for parameter, gradient in ours.gradients.items():
        assert distance(gradient, there.gradients[parameter]) <= TOLERANCE, parameter


def test_X8_the_blocks_of_the_config_are_the_network_composed_by_name() -> None:
    built = load(find_config(residual.CONFIG))
    assert residual.resnet20(weighted=True).graph_hash() == built.model.symbol.graph_hash()


def test_X3_mxnet_reads_and_writes_it() -> None:
    reason = MXNet.unavailable()
    if reason is not None:
        pytest.skip(reason)
    symbol, data = residual.resnet20(), (2, 3, 32, 32)
    with MXNet() as peer:
        saved = peer.save_json(symbol.tojson())
        theirs = peer.infer_shape(symbol.tojson(), {"data": data})
    assert list(saved.arguments) == symbol.list_arguments()
    assert list(saved.outputs) == symbol.list_outputs()
    assert list(saved.auxiliary) == symbol.list_auxiliary_states()
    assert load_json(saved.json).graph_hash() == symbol.graph_hash()
    inference = infer(symbol.heads, {"data": data})
    ours = {n.name: inference.shapes[NodeEntry(n)] for n in symbol.nodes if n.is_variable}
    assert ours == {**theirs.arguments, **theirs.auxiliary}


@pytest.mark.skipif(onednn.load() is None, reason=onednn.reason())
def test_no_step_runs_on_numpy_where_onednn_is() -> None:
    plan = plan_for(load(find_config(residual.CONFIG), SYNTHETIC), training=True)
    slow = {
        name: implementation
        for phase in plan.phases.values()
        for name, implementation in phase.implementations().items()
        if "numpy" in implementation
    }
    assert slow == {}


@pytest.mark.full
def test_F1_a_run_touches_what_was_planned_and_no_more(tmp_path: Path) -> None:
    """At the config's own batch size, after compilation: the compiler takes 80 MiB."""
    train = ("train", residual.CONFIG, *SYNTHETIC, "train.epochs=1", "--overwrite")
    result(*train, cwd=tmp_path)
    summary = result(*train, cwd=tmp_path)
    memory = summary["memory"]
    assert summary["steps"] == 2
    assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]
    assert memory["rss_peak_bytes"] <= 375 << 20
