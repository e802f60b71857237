"""Complete networks against PyTorch and MXNet 1.9.1: outputs, gradients, training, JSON, shapes.

The peers compute in float64, so that differences are due to mxrun's rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import bundled
import networks
import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from networks import INPUTS, NETWORKS, Arrays, parameters, rule
from oracles.peer import MXNet, Peer, PyTorch
from oracles.sgd import SGD

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.config.bundled import find_config
from mxrun.executor.executor import Executor
from mxrun.graph.infer import infer
from mxrun.graph.node import NodeEntry
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, apply, load_json, variable
from mxrun.preparation.planning import load

PEERS: list[type[Peer]] = [MXNet, PyTorch]
SYMBOLS = Path(__file__).parents[1] / "peers" / "symbols"
SYMBOL_SHAPES = {"mlp": (4, 784), "lenet": (4, 1, 28, 28), "residual": (4, 2, 6, 6)}
TOLERANCE = 1e-5

CASES: dict[str, tuple[Callable[[], Symbol], Mapping[str, TensorSpec]]] = {
    **{name: (build, INPUTS) for name, build in NETWORKS.items()},
    **{
        name: (lambda name=name: bundled.composed(name), bundled.inputs(name))
        for name in bundled.LAYERS
    },
}


@cache
def running(kind: type[Peer]) -> Peer:
    return kind()


def asked(kind: type[Peer]) -> Peer:
    """Return the peer's process, started once; skips the test if the peer is not installed."""
    reason = kind.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return running(kind)


@pytest.fixture(scope="module", autouse=True)
def _stopped_afterwards() -> Iterator[None]:
    yield
    for kind in PEERS:
        if kind.unavailable() is None:
            running(kind).close()
    running.cache_clear()


def values(symbol: Symbol, inputs: Mapping[str, TensorSpec], batches: int) -> tuple[Arrays, Arrays]:
    """Parameters of a size that keeps activations near 1, and stacked batches."""
    # A seed with which float32 and float64 choose the same maxima in all pools.
    random = np.random.default_rng(15)
    inference = infer(symbol.heads, {name: spec.shape for name, spec in inputs.items()})
    shapes = {
        node.name: inference.spec(NodeEntry(node)).shape
        for node in symbol.nodes
        if node.is_variable and node.name not in inputs
    }
    weights = {
        name: (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")
        for name, shape in shapes.items()
    }
    data = {
        "data": random.standard_normal((batches, *inputs["data"].shape)).astype("float32"),
        "label": random.integers(0, 4, (batches, *inputs["label"].shape)).astype("int32"),
    }
    return weights, data


def as_float64(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Arrays:
    return {name: array.astype("float64") for name, array in arrays.items()}


def bound(symbol: Symbol, request: CompileRequest, weights: Arrays) -> Executor:
    executor = executor_for(compile_plan(symbol, request))
    for block in executor.plan.pinned:
        executor.tensor(block.name).write(weights.get(block.name, 0))
    return executor


def close(got: npt.NDArray[np.generic], expected: npt.NDArray[np.generic], what: str) -> None:
    """The largest difference, relative to the largest value."""
    assert got.shape == expected.shape, what
    largest = float(np.abs(expected).max())
    assert largest > 0, what
    assert float(np.abs(got - expected).max()) <= TOLERANCE * largest, what


@pytest.mark.parametrize("implementation", ["auto", "numpy"])
@pytest.mark.parametrize("kind", PEERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", CASES)
def test_O1_X5_L2_outputs_and_gradients_equal_the_peers(
    name: str, kind: type[Peer], implementation: str
) -> None:
    """`residual` sums gradients of three readers, `shared` those of layers with one weight."""
    peer = asked(kind)
    build, inputs = CASES[name]
    symbol = build()
    weights, batches = values(symbol, inputs, 1)
    batch = {key: array[0] for key, array in batches.items()}
    names = tuple(parameters(symbol))
    request = CompileRequest(
        inputs, gradients=names, phases=(TRAIN,), device=cpu(2), implementation=implementation
    )
    executor = bound(symbol, request, {**weights, **batch})
    executor.run(TRAIN)
    theirs = peer.run_symbol(symbol.tojson(), as_float64({**weights, **batch}))
    close(executor.result(TRAIN, "softmax_output").values(), theirs.outputs[0], "output")
    for parameter in names:
        close(
            executor.result(TRAIN, f"{parameter}_grad").values(),
            theirs.gradients[parameter],
            parameter,
        )


@pytest.mark.parametrize("kind", PEERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", CASES)
def test_five_training_steps_equal_the_peers(name: str, kind: type[Peer]) -> None:
    peer = asked(kind)
    build, inputs = CASES[name]
    symbol = build()
    weights, batches = values(symbol, inputs, 5)
    rules = {
        parameter: rule(wd=0.01 if parameter.endswith("_weight") else 0.0)
        for parameter in parameters(symbol)
    }
    executor = bound(symbol, CompileRequest(inputs, rules=rules, device=cpu(2)), weights)
    for step in range(5):
        for key, array in batches.items():
            executor.tensor(key).write(array[step])
        executor.run(TRAIN)
    sgd = SGD(lr=0.1, momentum=0.9, wd=0.01, rescale_grad=1 / networks.BATCH)
    theirs = peer.train(symbol.tojson(), as_float64(weights), as_float64(batches), sgd)
    for parameter, value in theirs.items():
        assert float(np.abs(value - weights[parameter]).max()) > 100 * TOLERANCE
        close(executor.tensor(parameter).values(), value, parameter)


def mxnet() -> MXNet:
    peer = asked(MXNet)
    assert isinstance(peer, MXNet)
    return peer


@pytest.mark.parametrize("name", CASES)
def test_X3_mxnet_reads_our_json(name: str) -> None:
    """MXNet loads and saves the graph, and mxrun reads the same graph back."""
    symbol = CASES[name][0]()
    saved = mxnet().save_json(symbol.tojson())
    assert list(saved.arguments) == symbol.list_arguments()
    assert list(saved.outputs) == symbol.list_outputs()
    assert list(saved.auxiliary) == symbol.list_auxiliary_states()
    assert load_json(saved.json).graph_hash() == symbol.graph_hash()


@pytest.mark.parametrize("name", CASES)
def test_X3_P1_mxnet_infers_the_same_shapes(name: str) -> None:
    build, inputs = CASES[name]
    symbol = build()
    known = {"data": inputs["data"].shape}
    theirs = mxnet().infer_shape(symbol.tojson(), known)
    inference = infer(symbol.heads, known)
    ours = {
        node.name: inference.shapes[NodeEntry(node)] for node in symbol.nodes if node.is_variable
    }
    assert ours == theirs.arguments
    assert tuple(inference.shapes[head] for head in symbol.heads) == theirs.outputs


@pytest.mark.parametrize("name", SYMBOL_SHAPES)
def test_X3_mxnets_own_files_are_read(name: str) -> None:
    """Includes old spellings and hidden attributes: the same lists, shapes, and graph."""
    text = (SYMBOLS / f"{name}.json").read_text()
    symbol = load_json(text)
    saved = mxnet().save_json(text)
    assert symbol.list_arguments() == list(saved.arguments)
    assert symbol.list_outputs() == list(saved.outputs)
    known = {"data": SYMBOL_SHAPES[name]}
    inference = infer(symbol.heads, known)
    theirs = mxnet().infer_shape(text, known)
    ours = {n.name: inference.shapes[NodeEntry(n)] for n in symbol.nodes if n.is_variable}
    assert ours == theirs.arguments
    again = mxnet().save_json(symbol.tojson())
    assert load_json(again.json).graph_hash() == symbol.graph_hash()


@pytest.mark.parametrize("name", SYMBOL_SHAPES)
def test_X3_a_loaded_file_keeps_its_hash(name: str) -> None:
    symbol = load_json((SYMBOLS / f"{name}.json").read_text())
    assert load_json(symbol.tojson()).graph_hash() == symbol.graph_hash()
    assert load_json(symbol.tojson()).tojson() == symbol.tojson()


@pytest.mark.parametrize("name", bundled.LAYERS)
def test_X8_operators_created_by_name_are_the_yamls_graph(name: str) -> None:
    built = load(find_config(name))
    assert bundled.composed(name, weighted=True).graph_hash() == built.model.symbol.graph_hash()
    assert bundled.composed(name).graph_hash() != built.model.symbol.graph_hash()
    texts = [bundled.composed(other, weighted=True).graph_hash() for other in bundled.LAYERS]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("kind", PEERS, ids=lambda kind: kind.__name__)
def test_labels_of_the_datas_shape_are_probabilities_as_the_peers_have_them(
    kind: type[Peer],
) -> None:
    peer = asked(kind)
    data = variable("data")
    symbol = networks.softmax(apply("FullyConnected", {"data": data}, {"num_hidden": 3}, "fc"))
    shapes = {"data": (6, 4), "label": (6, 3)}
    inference = infer(symbol.heads, shapes)
    specs = {
        node.name: inference.spec(NodeEntry(node)) for node in symbol.nodes if node.is_variable
    }
    assert specs["label"].dtype == "float32"
    random = np.random.default_rng(4)
    arrays = {
        name: random.standard_normal(spec.shape).astype("float32") for name, spec in specs.items()
    }
    likely = np.exp(arrays["label"])
    arrays["label"] = likely / likely.sum(axis=1, keepdims=True)
    names = tuple(parameters(symbol))
    inputs = {name: specs[name] for name in shapes}
    executor = bound(symbol, CompileRequest(inputs, gradients=names, phases=(TRAIN,)), arrays)
    executor.run(TRAIN)
    theirs = peer.run_symbol(symbol.tojson(), as_float64(arrays))
    output = theirs.outputs[0]
    close(executor.result(TRAIN, "softmax_output").values(), output, "output")
    for name in names:
        close(executor.result(TRAIN, f"{name}_grad").values(), theirs.gradients[name], name)
    loss = -(arrays["label"] * np.log(output)).sum()
    close(executor.result(TRAIN, "softmax_loss").values(), loss.reshape(1), "loss")
