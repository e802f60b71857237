"""Networks composed by one source text with `mxrun.sym` and with `mxnet.sym`, and their values.

Nothing of mxrun is imported, because MXNet's interpreter imports this file too.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def lenet(sym: Any) -> Any:
    data = sym.Variable("data")
    conv1 = sym.Convolution(data=data, kernel=(3, 3), num_filter=4, name="conv1")
    tanh1 = sym.Activation(data=conv1, act_type="tanh", name="tanh1")
    pool1 = sym.Pooling(data=tanh1, pool_type="max", kernel=(2, 2), stride=(2, 2), name="pool1")
    flat = sym.Flatten(data=pool1, name="flat")
    fc1 = sym.FullyConnected(data=flat, num_hidden=6, name="fc1")
    return sym.SoftmaxOutput(data=fc1, name="softmax")


def residual(sym: Any) -> Any:
    """Return a network with batch normalisation, whose sum has three readers."""
    data = sym.Variable("data")
    body = sym.Convolution(data, num_filter=3, kernel=(3, 3), pad=(1, 1), no_bias=True, name="c1")
    body = sym.BatchNorm(body, fix_gamma=False, eps=1e-3, name="bn1")
    body = sym.Activation(body, act_type="relu", name="relu1")
    joined = data + body
    scaled = joined * 0.5 + sym.Activation(joined, act_type="sigmoid", name="sigmoid1")
    fc = sym.FullyConnected(sym.Flatten(scaled, name="flat"), num_hidden=4, name="fc")
    return sym.LinearRegressionOutput(fc, sym.Variable("label"), name="lro")


def two_heads(sym: Any) -> Any:
    """Return outputs that are no losses, one of them a view and one a variable."""
    a = sym.Variable("a")
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    shared = sym.Activation(fc, act_type="tanh", name="tanh")
    return sym.Group([a * 2, shared, sym.Flatten(shared, name="flat"), a, fc])


def loss_and_features(sym: Any) -> Any:
    """Return a loss and the features before it, which get no gradient."""
    fc = sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")
    return sym.Group([sym.SoftmaxOutput(fc, name="softmax"), sym.BlockGrad(fc, name="block")])


def arithmetic(sym: Any) -> Any:
    a, b = sym.Variable("a"), sym.Variable("b")
    quotient = (2 - a) / (b * b + 1.5) - 3 / (a**2 + 1)
    return sym.Group([quotient + (a > b) * b - (-a), sym.maximum(a, b) + sym.minimum(a, 0.25)])


def fan_out(sym: Any) -> Any:
    """Return three heads that read one node."""
    h = sym.FullyConnected(sym.Variable("data"), num_hidden=4, name="h")
    heads = [sym.FullyConnected(h, num_hidden=2, name=f"head{i}") for i in range(3)]
    return sym.Group(heads)


def passed(sym: Any) -> Any:
    """Return outputs whose gradients are those of variables as they are, and a shared weight."""
    x, w = sym.Variable("x"), sym.Variable("w", shape=(5, 5))
    first = sym.FullyConnected(sym.Variable("z"), w, num_hidden=5, no_bias=True, name="first")
    second = sym.FullyConnected(first, w, num_hidden=5, no_bias=True, name="second")
    whole = sym.Concat(x, x * 2, sym.identity(sym.Variable("v"), name="same"), dim=1, name="whole")
    parts = sym.SliceChannel(whole, num_outputs=3, name="parts")
    return sym.Group(
        [
            x + sym.Variable("y"),
            sym.identity(x, name="i"),
            second,
            parts[1],
            x,
            sym.argmax(x, axis=1),
        ]
    )


NETWORKS = {
    "lenet": (lenet, {"data": (4, 1, 8, 8), "softmax_label": (4,)}),
    "residual": (residual, {"data": (2, 3, 5, 5), "label": (2, 4)}),
    "two_heads": (two_heads, {"a": (2, 5)}),
    "loss_and_features": (loss_and_features, {"data": (3, 5), "softmax_label": (3,)}),
    "arithmetic": (arithmetic, {"a": (3, 4), "b": (3, 4)}),
    "fan_out": (fan_out, {"data": (3, 5)}),
    "passed": (passed, {"x": (2, 5), "y": (2, 5), "z": (2, 5), "v": (2, 5)}),
}


def value(name: str, shape: tuple[int, ...]) -> Any:
    """Return the value of a variable: labels are classes, everything else small numbers."""
    random = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
    if name == "softmax_label":
        return random.randint(0, 3, shape).astype(np.float32)
    values = random.uniform(-1, 1, shape).astype(np.float32)
    return np.abs(values) + 0.5 if name.endswith(("gamma", "moving_var")) else values


def described(symbol: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the names and shapes of a symbol as plain data."""
    arguments, outputs, states = symbol.infer_shape(**shapes)
    return {
        "arguments": symbol.list_arguments(),
        "outputs": symbol.list_outputs(),
        "state_names": symbol.list_auxiliary_states(),
        "internals": symbol.get_internals().list_outputs(),
        "shapes": [list(map(list, each)) for each in (arguments, outputs, states)],
    }


def passes(executor: Any, array: Any, grad_req: Any, rounds: int) -> dict[str, Any]:
    """Run an executor's passes on `value`s and return everything that it holds as lists.

    array: makes an array from NumPy's. The gradient of output i is `value("out_grad<i>")`.
    """
    for dictionary in (executor.arg_dict, executor.aux_dict):
        for name, held in dictionary.items():
            held[:] = array(value(name, tuple(held.shape)))
    for gradient in executor.grad_dict.values():
        if gradient is not None:
            gradient[:] = 1.0
    found: dict[str, Any] = {"evaluated": _lists(executor.forward(is_train=False))}
    for _ in range(rounds):
        executor.forward(is_train=True)
        given = [
            array(value(f"out_grad{i}", tuple(each.shape)))
            for i, each in enumerate(executor.outputs)
        ]
        if grad_req != "null":
            executor.backward(given)
    found["trained"] = _lists(executor.outputs)
    found["gradients"] = {
        name: _lists([each])[0] for name, each in executor.grad_dict.items() if each is not None
    }
    found["states"] = {name: _lists([each])[0] for name, each in executor.aux_dict.items()}
    return found


def _lists(arrays: Any) -> list[Any]:
    return [array.asnumpy().astype(float).tolist() for array in arrays]
