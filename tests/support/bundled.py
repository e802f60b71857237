"""The bundled networks composed in Python by operator names, as in their YAML files."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable

library.load()

BATCH = 6
Layer = tuple[str, str, Mapping[str, object]]
_POOL = {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max"}

LAYERS: Mapping[str, tuple[Layer, ...]] = {
    "mlp_mnist": (
        ("FullyConnected", "fc1", {"num_hidden": 128}),
        ("Activation", "relu1", {"act_type": "relu"}),
        ("FullyConnected", "fc2", {"num_hidden": 64}),
        ("Activation", "relu2", {"act_type": "relu"}),
        ("FullyConnected", "fc3", {"num_hidden": 10}),
    ),
    "lenet_mnist": (
        ("Convolution", "conv1", {"num_filter": 20, "kernel": (5, 5)}),
        ("Activation", "tanh1", {"act_type": "tanh"}),
        ("Pooling", "pool1", _POOL),
        ("Convolution", "conv2", {"num_filter": 50, "kernel": (5, 5)}),
        ("Activation", "tanh2", {"act_type": "tanh"}),
        ("Pooling", "pool2", _POOL),
        ("FullyConnected", "fc1", {"num_hidden": 500}),
        ("Activation", "tanh3", {"act_type": "tanh"}),
        ("FullyConnected", "fc2", {"num_hidden": 10}),
    ),
    "digits_lenet": (
        ("Convolution", "conv1", {"num_filter": 16, "kernel": (3, 3), "pad": (1, 1)}),
        ("Activation", "relu1", {"act_type": "relu"}),
        ("Pooling", "pool1", _POOL),
        ("Convolution", "conv2", {"num_filter": 32, "kernel": (3, 3), "pad": (1, 1)}),
        ("Activation", "relu2", {"act_type": "relu"}),
        ("Pooling", "pool2", _POOL),
        ("FullyConnected", "fc1", {"num_hidden": 64}),
        ("Activation", "relu3", {"act_type": "relu"}),
        ("FullyConnected", "fc2", {"num_hidden": 10}),
    ),
}
SAMPLES = {"mlp_mnist": (1, 28, 28), "lenet_mnist": (1, 28, 28), "digits_lenet": (1, 8, 8)}


def inputs(name: str) -> dict[str, TensorSpec]:
    """The specs of a batch of a few samples."""
    return {
        "data": TensorSpec((BATCH, *SAMPLES[name])),
        "label": TensorSpec((BATCH,), "int32"),
    }


def composed(name: str, *, weighted: bool = False) -> Symbol:
    """Return the network `name`; `weighted` as in runs, with sample weights, which MXNet lacks."""
    with fresh_names():
        symbol = variable("data")
        for operator, layer, parameters in LAYERS[name]:
            symbol = apply(operator, {"data": symbol}, parameters, layer)
        ends = {"data": symbol, "label": variable("label")}
        if not weighted:
            return apply("SoftmaxOutput", ends, {}, "softmax")
        ends["sample_weight"] = variable("sample_weight")
        return apply("SoftmaxOutput", ends, {"use_sample_weight": True}, "softmax")
