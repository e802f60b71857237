"""Symbols and executors: composition, inference of shapes, binding, passes with every request.

python face_symbols.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from face_facts import note, note_error, numbers, write

import mxrun
from mxrun import nd, sym

SHAPES = {"data": (4, 3, 8, 8), "softmax_label": (4,)}


def network() -> Any:
    """A small network with moving statistics, branches and a loss."""
    with sym.NameManager():
        x = sym.Convolution(sym.Variable("data"), num_filter=4, kernel=(3, 3), name="conv")
        x = sym.Activation(sym.BatchNorm(x, fix_gamma=False, name="bn"), act_type="relu")
        left, right = sym.SliceChannel(x, num_outputs=2)
        x = sym.Concat(left * 2 - 1, sym.exp(-right), dim=1)
        x = sym.Pooling(x, pool_type="avg", kernel=(2, 2), stride=(2, 2))
        x = sym.Dropout(sym.FullyConnected(x, num_hidden=6, name="fc1"), p=0.3)
        x = sym.FullyConnected(sym.tanh(x), num_hidden=3, name="fc2")
        return sym.SoftmaxOutput(x, name="softmax")


def fill(arrays: dict[str, Any]) -> None:
    """Set arrays by their names."""
    for name, array in arrays.items():
        if name.endswith("label"):
            array[:] = np.arange(array.shape[0]) % 3
        else:
            array[:] = numbers(name, *array.shape, low=-0.5, high=0.5)


def passes(name: str, executor: Any, **inputs: Any) -> None:
    """Note outputs, gradients and states of two steps and of inference."""
    mxrun.random.seed(5)
    found: list[Any] = []
    for _ in range(2):
        found.append([each.copy() for each in executor.forward(is_train=True, **inputs)])
        executor.backward()
        found.append([None if each is None else each.copy() for each in executor.grad_arrays])
    found += [list(executor.forward()), executor.aux_arrays]
    note(name, found)


def composition() -> None:
    """Names, attributes, JSON, shapes and types."""
    net = network()
    note("names", [net.list_arguments(), net.list_outputs(), net.list_auxiliary_states()])
    note("internals", net.get_internals().list_outputs())
    note("json", [net.tojson(), str(net.graph_hash())])
    net.save("net.json")
    note("read", [sym.load("net.json").tojson() == net.tojson(), Path("net.json").read_text()])
    note("debug", net.debug_str())
    for name, given in (("shapes", SHAPES), ("partial", {"data": (0, 3, 8, 8)})):
        note(name, [*map(str, net.infer_shape_partial(**given))])
    note("types", [*map(str, net.infer_type(data="float64"))])
    with sym.AttrScope(mood="good"):
        v = sym.Variable("v", shape=(2, 3), lr_mult=2.0, wd_mult=0.5, dtype="float64")
    note("attributes", [v.attr_dict(), (v + 1).attr_dict()])
    relu = sym.Activation(act_type="relu", name="relu")
    with sym.Prefix("left_"):
        applied = relu(data=sym.FullyConnected(sym.Variable("x"), num_hidden=2))
    note("applied", [applied.list_arguments(), applied.tojson(), sym.Group([applied, v]).tojson()])


def binding() -> None:
    """Executors of shapes and of arrays, reshaped and bound again."""
    net = network()
    for request in ("write", "add", "null", {"fc1_weight": "add", "fc2_bias": "write"}):
        executor = net.simple_bind(mxrun.cpu(), grad_req=request, **SHAPES)
        fill(executor.arg_dict)
        if request == "null" or isinstance(request, dict):
            mxrun.random.seed(5)
        if request == "null":
            note("no gradients", [executor.forward(is_train=True), executor.aux_arrays])
        else:
            passes(f"requests {request}", executor)
        note(f"memory {request}", [executor.planned_bytes, executor.memory_report()])
    executor = net.simple_bind(mxrun.cpu(), **SHAPES)
    fill(executor.arg_dict)
    passes("given inputs", executor, data=numbers("in", 4, 3, 8, 8), softmax_label=[2, 1, 0, 0])
    smaller = executor.reshape(data=(2, 3, 8, 8), softmax_label=(2,))
    passes("reshaped", smaller, data=numbers("in2", 2, 3, 8, 8), softmax_label=[1, 2])
    passes("after reshape", executor, data=numbers("in", 4, 3, 8, 8))
    again = net.simple_bind(mxrun.cpu(1), **SHAPES)
    again.copy_params_from(executor.arg_dict, executor.aux_dict)
    passes("bound again on cpu(1)", again)
    arrays = {name: array.copy() for name, array in executor.arg_dict.items()}
    gradients = {name: nd.zeros(array.shape) for name, array in arrays.items() if "fc" in name}
    states = [nd.zeros((4,)), nd.ones((4,))]
    request = {name: "write" if name in gradients else "null" for name in arrays}
    bound = net.bind(mxrun.cpu(), arrays, gradients, request, states)
    passes("bound to arrays", bound)
    note("gradients given", [gradients, states])
    seen: list[Any] = []
    bound.set_monitor_callback(lambda name, array: seen.append([name, array.copy()]), True)
    bound.forward(is_train=True)
    bound.backward()
    note("monitored", seen)


def heads() -> None:
    """Gradients of several outputs, and symbols of every scalar operation."""
    a, b = sym.Variable("a"), sym.Variable("b")
    both = sym.Group([a * b + 2 / a, sym.sqrt(a) - b**2, sym.broadcast_add(a, b) >= 1])
    executor = both.simple_bind(mxrun.cpu(), a=(3, 4), b=(3, 4), grad_req="add")
    executor.arg_dict["a"][:] = numbers("a", 3, 4)
    executor.arg_dict["b"][:] = numbers("b", 3, 4)
    executor.forward(is_train=True)
    given = [nd.array(numbers(f"head{k}", 3, 4)) for k in range(3)]
    executor.backward(given)
    executor.forward(is_train=True)
    executor.backward(given)
    note("heads", [executor.outputs, executor.grad_arrays])
    note("eval", (a % b).eval(a=nd.array(numbers("a", 3, 4)), b=nd.array(numbers("b", 3, 4))))


def training() -> None:
    """A loop over batches with an updater."""
    net = network()
    executor = net.simple_bind(mxrun.cpu(), **SHAPES)
    fill(executor.arg_dict)
    optimizer = mxrun.optimizer.create("nag", learning_rate=0.1, momentum=0.9, wd=0.01)
    update = mxrun.optimizer.get_updater(optimizer)
    mxrun.random.seed(1)
    for step in range(5):
        executor.forward(is_train=True, data=numbers(f"step{step}", 4, 3, 8, 8))
        executor.backward()
        for name, gradient in executor.grad_dict.items():
            if name not in SHAPES:
                update(name, gradient, executor.arg_dict[name])
    note("trained", executor.arg_dict)


def errors() -> None:
    """What bad uses say."""
    net = network()
    bind = net.simple_bind
    note_error("missing shapes", lambda: bind(mxrun.cpu(), softmax_label=(4,)))
    note_error("contradiction", lambda: bind(mxrun.cpu(), data=(4, 3, 8, 8), fc2_bias=(4,)))
    note_error("unknown argument", lambda: bind(mxrun.cpu(), **SHAPES, dat=(3,)))
    note_error("request", lambda: bind(mxrun.cpu(), **SHAPES, grad_req="writ"))
    executor = bind(mxrun.cpu(), **SHAPES)
    note_error("backward first", executor.backward)
    note_error("input's name", lambda: executor.forward(dat=1))
    note_error("input's shape", lambda: executor.forward(data=np.ones((4, 3, 8, 9))))
    note_error("parameter", lambda: executor.copy_params_from({"fc3_weight": nd.ones((1,))}))
    note_error("larger", lambda: executor.reshape(data=(9, 3, 8, 8), softmax_label=(9,)))
    note_error("few arrays", lambda: net.bind(mxrun.cpu(), [nd.ones((4, 3, 8, 8))]))
    note_error("operator", lambda: sym.Convolutoin(sym.Variable("x")))
    note_error("parameter's value", lambda: sym.Pooling(sym.Variable("x"), kernel="large"))
    note_error("wrong json", lambda: sym.load_json("{}"))
    note_error("file", lambda: sym.load("nowhere.json"))
    note_error("output", lambda: net["nothing_output"])


if __name__ == "__main__":
    for part in (composition, binding, heads, training, errors):
        part()
    write()
