"""ResNet-20 for CIFAR composed by operator names, as in its YAML file with blocks."""

from __future__ import annotations

from mxrun import library
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable

library.load()

CONFIG = "resnet20_cifar10"
_UNITS = 3
_EPS = 1e-5


def resnet20(*, activation: str = "relu", weighted: bool = False) -> Symbol:
    """Return the network; `weighted` as in runs, with sample weights, which MXNet lacks."""
    with fresh_names():
        symbol = _activation(_conv_bn(variable("data"), "stem", 16), "relu", activation)
        for stage, filters in enumerate((16, 32, 64), 1):
            for unit in range(1, _UNITS + 1):
                halves = unit == 1 and stage > 1
                name, stride = f"stage{stage}/unit{unit}", 2 if halves else 1
                symbol = _unit(symbol, name, filters, stride, activation)
        pooling = {"pool_type": "avg", "global_pool": True}
        symbol = apply("Pooling", {"data": symbol}, pooling, "pool")
        symbol = apply("FullyConnected", {"data": symbol}, {"num_hidden": 10}, "fc")
        ends = {"data": symbol, "label": variable("label")}
        if not weighted:
            return apply("SoftmaxOutput", ends, {}, "softmax")
        ends["sample_weight"] = variable("sample_weight")
        return apply("SoftmaxOutput", ends, {"use_sample_weight": True}, "softmax")


def _unit(symbol: Symbol, name: str, filters: int, stride: int, activation: str) -> Symbol:
    """Return two convolutions with a shortcut, which is a convolution itself for stride 2."""
    first = _conv_bn(symbol, f"{name}/branch/first", filters, stride=stride)
    active = _activation(first, f"{name}/branch/relu", activation)
    second = _conv_bn(active, f"{name}/branch/second", filters)
    if stride > 1:
        symbol = _conv_bn(symbol, f"{name}/shortcut", filters, kernel=1, stride=stride)
    joined = apply("elemwise_add", {"lhs": second, "rhs": symbol}, {}, f"{name}/add")
    return _activation(joined, f"{name}/relu", activation)


def _conv_bn(symbol: Symbol, name: str, filters: int, kernel: int = 3, stride: int = 1) -> Symbol:
    convolution = {
        "num_filter": filters,
        "kernel": (kernel, kernel),
        "stride": (stride, stride),
        "pad": (kernel // 2, kernel // 2),
        "no_bias": True,
    }
    symbol = apply("Convolution", {"data": symbol}, convolution, f"{name}/conv")
    return apply("BatchNorm", {"data": symbol}, {"fix_gamma": False, "eps": _EPS}, f"{name}/bn")


def _activation(symbol: Symbol, name: str, kind: str) -> Symbol:
    return apply("Activation", {"data": symbol}, {"act_type": kind}, name)
