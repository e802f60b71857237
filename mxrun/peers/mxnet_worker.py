"""MXNet 1.9.1's side: runs, differentiates, trains and times symbols from their JSON."""

from __future__ import annotations

import ctypes
import json
from typing import Any

import mxnet as mx
import numpy as np

from mxrun.peers import mxnet_turns
from mxrun.peers.timing import busy_thread, milliseconds_per_step
from mxrun.peers.wire import Array, Message, group, numbered, prefixed

REJECTIONS: tuple[type[Exception], ...] = (mx.MXNetError, ValueError)


def _arrays(values: dict[str, Array]) -> dict[str, Any]:
    """MXNet arrays of the same types (mx.nd.array alone makes everything float32)."""
    return {name: mx.nd.array(value, dtype=value.dtype) for name, value in values.items()}


def _numpy(arrays: dict[str, Any]) -> dict[str, Array]:
    return {name: array.asnumpy() for name, array in arrays.items()}


def _require(symbol: Any, arrays: dict[str, Any]) -> None:
    """Raise ValueError naming arguments and auxiliary states without an array."""
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"no array for {', '.join(missing)}")


def _gradient_arrays(symbol: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Zeros for the gradient of every floating argument.

    Zeros, because an operator may leave a gradient unwritten: SoftmaxOutput its label's.
    """
    return {
        name: mx.nd.zeros(arrays[name].shape, dtype=arrays[name].dtype)
        for name in symbol.list_arguments()
        if np.issubdtype(arrays[name].dtype, np.floating)
    }


def _bind(symbol: Any, arrays: dict[str, Any], gradients: dict[str, Any]) -> Any:
    """An executor over these arrays."""
    return symbol.bind(
        mx.cpu(),
        {name: arrays[name] for name in symbol.list_arguments()},
        args_grad=gradients,
        grad_req={n: "write" if n in gradients else "null" for n in symbol.list_arguments()},
        aux_states={name: arrays[name] for name in symbol.list_auxiliary_states()},
    )


def run_symbol(message: Message) -> Message:
    """Outputs, gradients of all floating arguments and auxiliary states after the run."""
    symbol = mx.sym.load_json(message.fields["symbol"])
    arrays = _arrays(group(message.arrays, "inputs"))
    _require(symbol, arrays)
    wanted = message.fields["gradients"]
    gradients = _gradient_arrays(symbol, arrays) if wanted else {}
    executor = _bind(symbol, arrays, gradients)
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
    """Shapes as far as they follow from the known ones; MXNet writes 0 and () for unknown."""
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
    """The symbol as MXNet itself writes it, with its list of names."""
    symbol = mx.sym.load_json(message.fields["symbol"])
    return Message(
        {
            "symbol": symbol.tojson(),
            "arguments": symbol.list_arguments(),
            "outputs": symbol.list_outputs(),
            "auxiliary": symbol.list_auxiliary_states(),
        }
    )


class _Training:
    """An executor and SGD, with the multipliers MXNet's own optimizer gives every name.

    `variables` holds parameters and auxiliary states, in place: steps change both.
    """

    def __init__(
        self, symbol: Any, variables: dict[str, Any], batch: dict[str, Any], sgd: dict[str, float]
    ) -> None:
        states = set(symbol.list_auxiliary_states())
        self.parameters = parameters = {
            name: array for name, array in variables.items() if name not in states
        }
        self.batch = batch
        self.gradients = {name: mx.nd.zeros_like(array) for name, array in parameters.items()}
        self.executor = _bind(symbol, {**variables, **batch}, self.gradients)
        self.momenta = {name: mx.nd.zeros_like(array) for name, array in parameters.items()}
        multipliers = mx.optimizer.SGD(sym=symbol, param_idx2name=dict(enumerate(parameters)))
        self.keywords = {
            name: {
                "lr": sgd["lr"] * multipliers.lr_mult.get(name, 1.0),
                "wd": sgd["wd"] * multipliers.wd_mult.get(name, 1.0),
                "momentum": sgd["momentum"],
                "rescale_grad": sgd["rescale_grad"],
            }
            for name in parameters
        }

    def step(self, batch: dict[str, Any]) -> Any:
        """Copy a batch in, run forward, backward and the update; the first output."""
        for name, value in batch.items():
            self.batch[name][:] = value
        output = self.executor.forward(is_train=True)[0]
        self.executor.backward()
        # The operator itself: the optimizer's own calls of it take 0.25 ms more for six arrays.
        for name, weight in self.parameters.items():
            mx.nd.sgd_mom_update(
                weight,
                self.gradients[name],
                self.momenta[name],
                out=weight,
                **self.keywords[name],
            )
        return output


def train(message: Message) -> Message:
    """Parameters and auxiliary states after one step per batch."""
    symbol = mx.sym.load_json(message.fields["symbol"])
    batches = group(message.arrays, "batches")
    first = _arrays({name: value[0] for name, value in batches.items()})
    parameters = _arrays(group(message.arrays, "parameters"))
    _require(symbol, {**parameters, **first})
    training = _Training(symbol, parameters, first, message.fields["sgd"])
    for index in range(message.fields["steps"]):
        training.step({name: value[index] for name, value in batches.items()})
    return Message({}, prefixed("parameters", _numpy(parameters)))


class _TimedTraining:
    """A training ready to be timed, with accuracy and loss summed on the host."""

    def __init__(self, message: Message) -> None:
        symbol = mx.sym.load_json(message.fields["symbol"])
        batches = group(message.arrays, "batches")
        self.label = message.fields["label"]
        shapes = {name: value.shape[1:] for name, value in batches.items()}
        arguments, _, auxiliary = symbol.infer_shape(**shapes)
        random = np.random.default_rng(0)
        variables = {
            name: random.uniform(-0.05, 0.05, shape).astype(np.float32)
            for name, shape in zip(symbol.list_arguments(), arguments, strict=True)
            if name not in batches
        }
        for name, shape in zip(symbol.list_auxiliary_states(), auxiliary, strict=True):
            variables[name] = np.ones(shape, np.float32)
        first = _arrays({name: value[0] for name, value in batches.items()})
        self.training = _Training(symbol, _arrays(variables), first, message.fields["sgd"])
        steps = len(batches[self.label])
        self.batches = [{n: value[i] for n, value in batches.items()} for i in range(steps)]
        self.steps = 0
        self.correct = 0
        self.loss = 0.0

    def step(self) -> None:
        """One step; returns when every write of it has happened."""
        batch = self.batches[self.steps % len(self.batches)]
        probabilities = self.training.step(batch).asnumpy()
        label = batch[self.label].astype(np.int64)
        self.correct += int((probabilities.argmax(axis=1) == label).sum())
        self.loss -= float(np.log(probabilities[np.arange(len(label)), label] + 1e-12).sum())
        mx.nd.waitall()
        self.steps += 1


_timed: dict[str, _TimedTraining] = {}


def time_step(message: Message) -> Message:
    """Milliseconds per step; the first request for a training builds and warms it up."""
    key = json.dumps([message.fields["symbol"], message.fields["sgd"]])
    if key not in _timed:
        _timed[key] = _TimedTraining(message)
        milliseconds_per_step(_timed[key].step, message.fields["warm_up"])
    with busy_thread(message.fields["busy_thread"]):
        times = milliseconds_per_step(_timed[key].step, message.fields["steps"])
    return Message({"milliseconds": times})


def describe(message: Message) -> Message:
    """MXNet's version and the names of its operators."""
    del message
    count = ctypes.c_uint()
    names = ctypes.POINTER(ctypes.c_char_p)()
    mx.base.check_call(mx.base._LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    operators = sorted(names[index].decode() for index in range(count.value))
    return Message({"version": mx.__version__, "operators": operators})


HANDLERS = {
    **mxnet_turns.HANDLERS,
    "describe": describe,
    "infer_shape": infer_shape,
    "run_symbol": run_symbol,
    "save_json": save_json,
    "time_step": time_step,
    "train": train,
}
