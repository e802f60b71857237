"""Generated names never collide with a user's."""

from __future__ import annotations

import pytest
from executors import executor_for
from networks import INPUTS, chain, fill, plan_of, softmax

from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, apply, group, variable

CONVOLUTION = {"num_filter": 4, "kernel": (3, 3), "pad": (1, 1)}


def close_names() -> Symbol:
    """Return a network with names of layers and parameters similar to those of steps and states."""
    first = chain(variable("data"), ("Convolution", CONVOLUTION, "c1_backward"))
    second = chain(first, ("Convolution", CONVOLUTION, "c1"))
    third = apply(
        "FullyConnected",
        {"data": second, "weight": variable("c1_weight_mom"), "bias": variable("schedule")},
        {"num_hidden": 4},
        "c1_weight_update",
    )
    return softmax(third)


def plain_names() -> Symbol:
    first = chain(variable("data"), ("Convolution", CONVOLUTION, "a"))
    second = chain(first, ("Convolution", CONVOLUTION, "b"))
    return softmax(chain(second, ("FullyConnected", {"num_hidden": 4}, "c")))


@pytest.mark.parametrize("implementation", ["auto", "numpy"])
def test_close_names_train_like_any_others(implementation: str) -> None:
    losses = []
    for symbol in (close_names(), plain_names()):
        executor = executor_for(plan_of(symbol, implementation=implementation))
        fill(executor)
        for _ in range(3):
            executor.run(TRAIN)
        losses.append(executor.result(TRAIN, "softmax_loss").values().tobytes())
    assert losses[0] == losses[1]


def test_a_result_may_be_called_like_an_input() -> None:
    layer = chain(variable("data"), ("FullyConnected", {"num_hidden": 4}, "x"))
    other = chain(variable("x_output"), ("FullyConnected", {"num_hidden": 4}, "other"))
    joined = apply("elemwise_add", {"lhs": layer, "rhs": other}, {}, "joined")
    inputs = {**INPUTS, "x_output": TensorSpec((6, 9))}
    symbol = group([softmax(joined), layer])
    executor = executor_for(plan_of(symbol, inputs=inputs, frozen=("x_output",)))
    fill(executor)
    executor.run(TRAIN)
    assert executor.tensor("x_output").values().shape == (6, 9)
    assert executor.result(TRAIN, "x_output").values().shape == (6, 4)


def test_two_outputs_of_one_name_are_refused() -> None:
    layer = chain(variable("data"), ("FullyConnected", {"num_hidden": 4}, "x"))
    inputs = {**INPUTS, "x_output": TensorSpec((6, 9))}
    symbol = group([softmax(layer), layer, variable("x_output")])
    with pytest.raises(UserError, match="two outputs are named 'x_output'"):
        plan_of(symbol, inputs=inputs, frozen=("x_output",))


def test_one_source_name_stands_for_one_tensor() -> None:
    builder = GraphBuilder(Graph())
    source = builder.source("a", TensorSpec((3,)), MemoryClass.IO)
    assert builder.source("a", TensorSpec((3,)), MemoryClass.IO) == source
    with pytest.raises(InternalError, match="two tensors"):
        builder.source("a", TensorSpec((4,)), MemoryClass.IO)
