"""MXNet 1.9.1 oracle: runs, differentiates and trains symbols from their JSON.

`mxrun/peers/worker.py` runs this file in a helper process.
"""

from __future__ import annotations

import ctypes
import inspect
from typing import Any

import mxnet as mx
import numpy as np

from mxrun.peers.mxnet_symbol import bind
from mxrun.peers.wire import Array, Message, group, numbered, prefixed

REJECTIONS: tuple[type[Exception], ...] = (mx.MXNetError, ValueError)


def _arrays(values: dict[str, Array]) -> dict[str, Any]:
    """Return MXNet arrays of the same dtypes (mx.nd.array alone converts everything to float32)."""
    return {name: mx.nd.array(value, dtype=value.dtype) for name, value in values.items()}


def _numpy(arrays: dict[str, Any]) -> dict[str, Array]:
    return {name: array.asnumpy() for name, array in arrays.items()}


def _gradient_arrays(symbol: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return zeros for the gradient of every floating argument.

    Zeros, because an operator may leave a gradient unwritten, such as SoftmaxOutput its label's.
    """
    return {
        name: mx.nd.zeros(arrays[name].shape, dtype=arrays[name].dtype)
        for name in symbol.list_arguments()
        if name in arrays and np.issubdtype(arrays[name].dtype, np.floating)
    }


def run_symbol(message: Message) -> Message:
    """Run a symbol; return outputs, gradients of floating arguments, auxiliary states."""
    symbol = mx.sym.load_json(message.fields["symbol"])
    arrays = _arrays(group(message.arrays, "inputs"))
    wanted = message.fields["gradients"]
    gradients = _gradient_arrays(symbol, arrays) if wanted else {}
    executor = bind(symbol, arrays, gradients)
    outputs = executor.forward(is_train=message.fields["is_train"])
    if wanted:
        heads = list(_arrays(group(message.arrays, "out_gradients")).values())
        executor.backward(heads or [mx.nd.ones_like(output) for output in outputs])
    auxiliary = {name: arrays[name] for name in symbol.list_auxiliary_states()}
    return Message(
        {},
        {
            **prefixed("outputs", numbered([output.asnumpy() for output in outputs])),
            **prefixed("gradients", _numpy(gradients)),
            **prefixed("auxiliary", _numpy(auxiliary)),
        },
    )


def infer_shape(message: Message) -> Message:
    """Infer shapes from the known ones; MXNet uses 0 and () for unknown sizes and ranks."""
    symbol = mx.sym.load_json(message.fields["symbol"])
    known = {name: tuple(shape) for name, shape in message.fields["known"].items()}
    arguments, outputs, auxiliary = symbol.infer_shape_partial(**known)
    return Message(
        {
            "arguments": dict(zip(symbol.list_arguments(), arguments, strict=True)),
            "outputs": list(outputs),
            "auxiliary": dict(zip(symbol.list_auxiliary_states(), auxiliary, strict=True)),
        }
    )


def save_json(message: Message) -> Message:
    """Return the symbol as MXNet itself saves it, with its lists of names."""
    symbol = mx.sym.load_json(message.fields["symbol"])
    return Message(
        {
            "symbol": symbol.tojson(),
            "arguments": symbol.list_arguments(),
            "outputs": symbol.list_outputs(),
            "auxiliary": symbol.list_auxiliary_states(),
        }
    )


def train(message: Message) -> Message:
    """Train one step per batch with MXNet's own SGD; return parameters and auxiliary states.

    The optimizer applies the multipliers of each variable.
    """
    symbol, sgd = mx.sym.load_json(message.fields["symbol"]), message.fields["sgd"]
    batches = group(message.arrays, "batches")
    inputs = _arrays({name: value[0] for name, value in batches.items()})
    variables = _arrays(group(message.arrays, "parameters"))
    states = set(symbol.list_auxiliary_states())
    names = [name for name in variables if name not in states]
    gradients = {name: mx.nd.zeros_like(variables[name]) for name in names}
    executor = bind(symbol, {**variables, **inputs}, gradients)
    optimizer = mx.optimizer.SGD(
        learning_rate=sgd["lr"],
        momentum=sgd["momentum"],
        wd=sgd["wd"],
        rescale_grad=sgd["rescale_grad"],
        sym=symbol,
        param_idx2name=dict(enumerate(names)),
    )
    update = mx.optimizer.get_updater(optimizer)
    for step in range(message.fields["steps"]):
        for name, value in batches.items():
            inputs[name][:] = value[step]
        executor.forward(is_train=True)
        executor.backward()
        for index, name in enumerate(names):
            update(index, gradients[name], variables[name])
    return Message({}, prefixed("parameters", _numpy(variables)))


def evaluate(message: Message) -> Message:
    """Return the values of expressions on arrays; `nd` is MXNet's module."""
    names = {"nd": mx.nd, **_arrays(group(message.arrays, "operands"))}
    values = [eval(text, dict(names)).asnumpy() for text in message.fields["expressions"]]
    return Message({}, prefixed("values", numbered(values)))


def positions(message: Message) -> Message:
    """Return the names of the arguments of functions of `mx.nd`, in order."""
    found = {}
    for name in message.fields["functions"]:
        function = getattr(mx.nd, name, None) or getattr(mx.nd._internal, name, None)
        if function is not None:
            found[name] = list(inspect.signature(function).parameters)
    return Message({"positions": found})


def operators(message: Message) -> Message:
    """Return the names of MXNet's operators."""
    del message
    count = ctypes.c_uint()
    names = ctypes.POINTER(ctypes.c_char_p)()
    mx.base.check_call(mx.base._LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    return Message({"operators": sorted(names[index].decode() for index in range(count.value))})


def version(message: Message) -> Message:
    """Return the peer's version."""
    del message
    return Message({"version": mx.__version__})


HANDLERS = {
    "evaluate": evaluate,
    "infer_shape": infer_shape,
    "operators": operators,
    "positions": positions,
    "run_symbol": run_symbol,
    "save_json": save_json,
    "train": train,
    "version": version,
}
