"""Every operator row against MXNet 1.9.1 and PyTorch: outputs and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from operator_harness import BackwardData, ForwardRun, backward, forward
from operator_row import Array, Row, agree
from operator_rows import ROWS
from oracles.peer import MXNet, Peer, PeerResults, PyTorch

from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind

PEERS: list[type[Peer]] = [MXNet, PyTorch]
PAIRS = [(kind, row) for kind in PEERS for row in ROWS if kind.__name__ in row.peers]


@cache
def running(kind: type[Peer]) -> Peer:
    return kind()


@pytest.fixture(scope="module", autouse=True)
def _stopped_afterwards() -> Iterator[None]:
    yield
    for kind in PEERS:
        if kind.unavailable() is None:
            running(kind).close()
    running.cache_clear()


@pytest.mark.parametrize(
    ("kind", "row"), PAIRS, ids=lambda part: getattr(part, "__name__", str(part))
)
def test_O1_outputs_and_gradients_equal_the_peers(kind: type[Peer], row: Row) -> None:
    reason = kind.unavailable()
    if reason is not None:
        pytest.skip(reason)
    peer = running(kind)
    prop, inputs = row.create(), row.inputs("float32")
    run = forward(NUMPY, prop, inputs, row.blank_outputs("float32"), is_train=row.is_train)
    assert run is not None
    random = np.random.default_rng(3)
    out_grad = [random.standard_normal(output.shape).astype(output.dtype) for output in run.outputs]
    theirs = peer.run_operator(
        row.operator,
        prop.parameters.to_strings(),
        {
            name: value.astype("float32") if name == "label" else value
            for name, value in zip(row.names, inputs, strict=True)
        },
        out_grad[: prop.num_visible_outputs],
        is_train=row.is_train,
        gradients=row.is_train and prop.list_mutated_inputs() == {},
    )
    for ours, other in zip(run.outputs, theirs.outputs, strict=False):
        agree(ours, other, row.agreement)
    for source, target in prop.list_mutated_inputs().items():
        if source:
            moved = theirs.auxiliary[row.names[source]]
            agree(run.outputs[target], moved, row.agreement, row.names[source])
    if row.has_gradient and row.is_train:
        compare_gradients(row, inputs, run, out_grad, theirs)


def compare_gradients(
    row: Row, inputs: list[Array], run: ForwardRun, out_grad: list[Array], theirs: PeerResults
) -> None:
    prop = row.create()
    arguments = inputs[: len(prop.list_arguments())]
    blank = [np.full(array.shape, np.nan, "float32") for array in arguments]
    data = BackwardData(out_grad, arguments, run.outputs)
    gradients = backward(NUMPY, prop, data, blank, run)
    for name, kind, gradient in zip(row.names, prop.list_gradients(), gradients, strict=False):
        if kind is GradientKind.COMPUTES:
            agree(gradient, theirs.gradients[name], row.agreement, name)
