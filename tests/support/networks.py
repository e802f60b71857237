"""Small networks for the tests of graph and executor, composed by operator name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from executors import cpu, executor_for

from mxrun import library
from mxrun.base.errors import SourceLocation
from mxrun.base.layer_options import LayerOptions
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.graph.update_rule import UpdateRule
from mxrun.planner.plan import Plan

library.load()

BATCH = 6
INPUTS = {"data": TensorSpec((BATCH, 3, 9, 9)), "label": TensorSpec((BATCH,), "int32")}
# Inputs of networks of dense layers.
VECTORS = {"data": TensorSpec((BATCH, 8)), "label": TensorSpec((BATCH,), "int32")}

Arrays = dict[str, npt.NDArray[Any]]


def chain(symbol: Symbol, *layers: tuple[str, Mapping[str, object], str]) -> Symbol:
    """Return layers in sequence, each given as (operator, parameters, name)."""
    for operator, parameters, name in layers:
        symbol = apply(operator, {"data": symbol}, parameters, name)
    return symbol


def with_precisions(symbol: Symbol, precisions: Mapping[str, str]) -> Symbol:
    """The same network, its layers at line 7 of net.yaml, with the precision of some by name."""
    done: dict[str, Node] = {}

    def copied(entry: NodeEntry) -> NodeEntry:
        node = entry.node
        if node.name not in done:
            inputs = tuple(map(copied, node.inputs))
            options = LayerOptions(precision=precisions.get(node.name))
            place = SourceLocation("net.yaml", 7, 3)
            done[node.name] = Node(node.name, node.prop, inputs, place=place, options=options)
        return NodeEntry(done[node.name], entry.index)

    return Symbol([copied(head) for head in symbol.heads])


def set_first_values(executor: Executor, seed: int) -> None:
    """Set labels in turn, parameters to initial values, and data to random numbers.

    The values do not depend on the order of tensors in the plan.
    """
    random = np.random.default_rng(seed)
    for name in sorted(block.name for block in executor.plan.pinned):
        array = executor.tensor(name).mirror().array
        if name == "label":
            array[...] = np.arange(len(array)) % 10
        elif name.endswith(("gamma", "moving_var")):
            array[...] = 1
        elif name.endswith("weight"):
            array[...] = random.standard_normal(array.shape) * (2 / array[0].size) ** 0.5
        elif name == "data":
            array[...] = random.standard_normal(array.shape)
        else:
            array[...] = 0


def softmax(symbol: Symbol) -> Symbol:
    return apply("SoftmaxOutput", {"data": symbol, "label": variable("label")}, {}, "softmax")


def dense(symbol: Symbol, name: str, num_hidden: int = 8) -> Symbol:
    return apply("FullyConnected", {"data": symbol}, {"num_hidden": num_hidden}, name)


def convolutional() -> Symbol:
    """Two convolutions with tanh and pooling, flattened into a dense layer."""
    with fresh_names():
        return softmax(
            chain(
                variable("data"),
                ("Convolution", {"num_filter": 5, "kernel": (3, 3), "pad": (1, 1)}, "conv1"),
                ("Activation", {"act_type": "tanh"}, "tanh1"),
                ("Pooling", {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max"}, "pool1"),
                ("Convolution", {"num_filter": 7, "kernel": (3, 3)}, "conv2"),
                ("Activation", {"act_type": "relu"}, "relu2"),
                ("Flatten", {}, "flatten"),
                ("FullyConnected", {"num_hidden": 4}, "fc"),
            )
        )


def residual() -> Symbol:
    """A value with three readers: its gradient is a sum."""
    with fresh_names():
        stem = chain(
            variable("data"),
            ("Convolution", {"num_filter": 4, "kernel": (3, 3), "pad": (1, 1)}, "stem"),
            ("Activation", {"act_type": "relu"}, "relu"),
        )
        left = chain(
            stem, ("Convolution", {"num_filter": 4, "kernel": (3, 3), "pad": (1, 1)}, "left")
        )
        right = chain(stem, ("Convolution", {"num_filter": 4, "kernel": (1, 1)}, "right"))
        joined = apply("elemwise_add", {"lhs": left, "rhs": right}, {}, "join")
        again = apply("elemwise_add", {"lhs": joined, "rhs": stem}, {}, "again")
        return softmax(chain(again, ("FullyConnected", {"num_hidden": 4}, "fc")))


def shared() -> Symbol:
    """Return two dense layers that share one weight."""
    with fresh_names():
        weight, bias = variable("shared_weight"), variable("shared_bias")
        symbol = chain(variable("data"), ("FullyConnected", {"num_hidden": 8}, "fc0"))
        for name in ("fc1", "fc2"):
            symbol = apply(
                "FullyConnected",
                {"data": symbol, "weight": weight, "bias": bias},
                {"num_hidden": 8},
                name,
            )
            symbol = apply("Activation", {"data": symbol}, {"act_type": "tanh"}, f"{name}_tanh")
        return softmax(symbol)


NETWORKS = {"convolutional": convolutional, "residual": residual, "shared": shared}


def parameters(symbol: Symbol) -> list[str]:
    return [name for name in symbol.list_arguments() if name not in INPUTS]


def rule(**changes: object) -> UpdateRule:
    common: dict[str, object] = {
        "lr": 0.1,
        "momentum": 0.9,
        "wd": 0.01,
        "rescale_grad": 1 / BATCH,
    }
    return UpdateRule("sgd_mom_update", common | changes)


def plan_of(symbol: Symbol, frozen: tuple[str, ...] = (), threads: int = 2, **options: Any) -> Plan:
    trained = [name for name in parameters(symbol) if name not in frozen]
    settings: dict[str, Any] = {
        "inputs": INPUTS,
        "rules": {name: rule() for name in trained},
        "device": cpu(threads),
    }
    return compile_plan(symbol, CompileRequest(**settings | options))


def fill(executor: Executor, seed: int = 0) -> None:
    """Set parameters and one batch from a seed."""
    generator = np.random.default_rng(seed)
    for block in executor.plan.pinned:
        array = executor.tensor(block.name).mirror().array
        if array.dtype == np.int32:
            array[...] = generator.integers(0, 4, array.shape)
        elif array.dtype == np.int64:
            # Keys and steps of random numbers, beside which the others are those of any network.
            array[...] = 0
        elif block.name.endswith(":mom") or block.memory_class is MemoryClass.CARRIED:
            array[...] = 0
        else:
            array[...] = generator.normal(size=array.shape) * 0.3


def pinned(executor: Executor) -> Arrays:
    """Return copies of inputs, parameters and states."""
    return {block.name: executor.tensor(block.name).read() for block in executor.plan.pinned}


def trained(plan: Plan, steps: int = 3, poisoned: bool = False) -> tuple[list[float], Arrays]:
    """The losses of a few training steps and the parameters and states after them."""
    executor = executor_for(plan)
    fill(executor)
    losses = []
    for _ in range(steps):
        if poisoned:
            executor.run_poisoned(TRAIN)
        else:
            executor.run(TRAIN)
        losses.append(float(executor.result(TRAIN, "softmax_loss").values()[0]))
    return losses, pinned(executor)


def gradients_of(symbol: Symbol, **options: Any) -> Arrays:
    """The gradient of every parameter for the batch of `fill`, without updates."""
    names = tuple(parameters(symbol))
    plan = plan_of(symbol, rules={}, gradients=names, phases=(TRAIN,), **options)
    executor = executor_for(plan)
    fill(executor)
    executor.run(TRAIN)
    return {name: executor.result(TRAIN, f"{name}_grad").read() for name in names}


def same_bits(left: Arrays, right: Arrays) -> bool:
    return left.keys() == right.keys() and all(
        left[name].tobytes() == right[name].tobytes() for name in left
    )
