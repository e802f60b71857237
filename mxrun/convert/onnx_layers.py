"""ONNX translators of layers: operators with weights or windows, normalisation, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mxrun.convert.onnx_writer import NotInOnnx, OperatorWriter, translates

_FLATTENED_RANK = 2
_ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


@translates("Activation")
def activation(place: OperatorWriter) -> str:
    """Translate to the elementwise operator that `act_type` names."""
    kind = place.prop.parameters.act_type
    if kind not in _ACTIVATIONS:
        raise NotInOnnx(f"act_type {kind}")
    return place.node(_ACTIVATIONS[kind], place.inputs[0])


@translates("LeakyReLU")
def leaky_relu(place: OperatorWriter) -> str:
    """Translate the rectifier that `act_type` names.

    rrelu uses its mean slope in inference. GELU is composed of other operators, because opset 17
    has none.
    """
    data, p = place.inputs[0], place.prop.parameters
    if p.act_type == "leaky":
        return place.node("LeakyRelu", data, alpha=float(p.slope))
    if p.act_type == "rrelu":
        return place.node("LeakyRelu", data, alpha=float(p.lower_bound + p.upper_bound) / 2)
    if p.act_type == "elu":
        return place.node("Elu", data, alpha=float(p.slope))
    if p.act_type == "selu":
        return place.node("Selu", data)
    if p.act_type == "prelu":
        channels = place.shapes[1][0]
        ones = (1,) * (len(place.shapes[0]) - 2)
        slope = place.node("Reshape", place.inputs[1], place.integers((channels, *ones)))
        return place.node("PRelu", data, slope)
    return _exact_gelu(place, data)


@translates("gelu")
def gelu(place: OperatorWriter) -> str:
    """Translate to data * (1 + gate) / 2, where the gate is erf or tanh of a function of data."""
    data = place.inputs[0]
    if place.prop.parameters.approximate == "none":
        return _exact_gelu(place, data)
    square = place.node("Mul", place.node("Mul", data, data), place.numbers(0.044715))
    factor = place.node("Add", square, place.numbers(1))
    inner = place.node(
        "Mul", place.node("Mul", data, factor), place.numbers(math.sqrt(2 / math.pi))
    )
    return _gelu(place, data, place.node("Tanh", inner))


def _exact_gelu(place: OperatorWriter, data: str) -> str:
    gate = place.node("Erf", place.node("Mul", data, place.numbers(math.sqrt(0.5))))
    return _gelu(place, data, gate)


def _gelu(place: OperatorWriter, data: str, gate: str) -> str:
    half = place.node("Mul", data, place.numbers(0.5))
    return place.node("Mul", half, place.node("Add", gate, place.numbers(1)))


@translates("silu")
def silu(place: OperatorWriter) -> str:
    """Translate to data * Sigmoid(data)."""
    return place.node("Mul", place.inputs[0], place.node("Sigmoid", place.inputs[0]))


@translates("gated_activation")
def gated_activation(place: OperatorWriter) -> str:
    """Translate to the product of the second half and an activation of the first one."""
    half, act_type = place.shapes[0][-1] // 2, place.prop.parameters.act_type
    sizes = place.integers((half, half))
    gate, value = place.split("Split", (place.inputs[0], sizes), 2, axis=-1)
    if act_type == "gelu":
        return place.node("Mul", _exact_gelu(place, gate), value)
    factor = place.node("Sigmoid", gate)
    if act_type == "silu":
        factor = place.node("Mul", gate, factor)
    return place.node("Mul", factor, value)


@translates("FullyConnected")
def fully_connected(place: OperatorWriter) -> str:
    """Translate to Gemm on rows, or to MatMul and Add if only the last axis is multiplied."""
    data, weight, *bias = place.inputs
    rank = len(place.shapes[0])
    if place.prop.parameters.flatten or rank == _FLATTENED_RANK:
        rows = data if rank == _FLATTENED_RANK else place.node("Flatten", data, axis=1)
        return place.node("Gemm", rows, weight, *bias, transB=1)
    product = place.node("MatMul", data, place.node("Transpose", weight, perm=(1, 0)))
    return place.node("Add", product, *bias) if bias else product


@translates("Convolution")
def convolution(place: OperatorWriter) -> str:
    """Translate to Conv with equal padding at both ends."""
    return place.node("Conv", *place.inputs, **_window(place), group=_groups(place))


@translates("Deconvolution")
def deconvolution(place: OperatorWriter) -> str:
    """Translate to ConvTranspose; MXNet's `adj` is its output_padding."""
    p = place.prop.parameters
    if p.target_shape:
        raise NotInOnnx("target_shape")
    adjusted = {"output_padding": p.adj} if p.adj else {}
    window = _window(place)
    return place.node("ConvTranspose", *place.inputs, **window, **adjusted, group=_groups(place))


def _groups(place: OperatorWriter) -> int:
    return int(place.prop.parameters.num_group)


def _window(place: OperatorWriter) -> dict[str, tuple[int, ...]]:
    p = place.prop.parameters
    ones, zeros = (1,) * len(p.kernel), (0,) * len(p.kernel)
    pads = p.pad or zeros
    return {
        "kernel_shape": p.kernel,
        "strides": p.stride or ones,
        "dilations": p.dilate or ones,
        "pads": (*pads, *pads),
    }


@translates("BatchNorm")
def batch_norm(place: OperatorWriter) -> str:
    """Translate to BatchNormalization by the moving statistics; a fixed gamma becomes ones."""
    p = place.prop.parameters
    if p.axis % len(place.shapes[0]) != 1:
        raise NotInOnnx(f"axis {p.axis}: channels must be axis 1")
    data, gamma, *rest = place.inputs
    if p.fix_gamma:
        gamma = place.array(np.ones(place.shapes[1], np.float32))
    return place.node("BatchNormalization", data, gamma, *rest, epsilon=float(p.eps))


@translates("LayerNorm")
def layer_norm(place: OperatorWriter) -> str:
    """Translate to LayerNormalization, which normalises the last axis."""
    p = place.prop.parameters
    _require_last_axis(place)
    if p.output_mean_var:
        raise NotInOnnx("the outputs mean and std")
    return place.node("LayerNormalization", *place.inputs, axis=-1, epsilon=float(p.eps))


@translates("RMSNorm")
def rms_norm(place: OperatorWriter) -> str:
    """Translate to gamma * data / sqrt(mean of data^2 + eps); opset 17 has no such operator."""
    _require_last_axis(place)
    data, gamma = place.inputs
    square = place.node("ReduceMean", place.node("Mul", data, data), axes=(-1,), keepdims=1)
    sum_of_both = place.node("Add", square, place.numbers(place.prop.parameters.eps))
    normal = place.node("Div", data, place.node("Sqrt", sum_of_both))
    return place.node("Mul", normal, gamma)


def _require_last_axis(place: OperatorWriter) -> None:
    axis, rank = place.prop.parameters.axis, len(place.shapes[0])
    if axis % rank != rank - 1:
        raise NotInOnnx(f"axis {axis}: it must be the last one")


_POOLING = {"max": "MaxPool", "avg": "AveragePool"}
_OUTSIDE = (
    "a window lies in the padding alone, which runtimes refuse; a smaller pad, or "
    "pooling_convention valid, makes a network without such windows"
)


@translates("Pooling")
def pooling(place: OperatorWriter) -> str:
    """Translate to MaxPool or AveragePool.

    The padding at the end is computed from the last window, so that all windows are at the
    positions of MXNet's `full` convention. The mean counts the requested padding, but none beyond
    it.
    """
    p, data = place.prop.parameters, place.inputs[0]
    if p.pool_type not in _POOLING:
        raise NotInOnnx(f"pool_type {p.pool_type}")
    if p.global_pool:
        return place.node(f"Global{_POOLING[p.pool_type]}", data)
    if p.pooling_convention == "same":
        raise NotInOnnx("pooling_convention same")
    ones, zeros = (1,) * len(p.kernel), (0,) * len(p.kernel)
    strides, pads = p.stride or ones, p.pad or zeros
    ends = _ends(place, p.kernel, strides, pads)
    if p.pool_type == "max" or p.count_include_pad is False or not any(pads):
        return _pooled(place, data, strides, pads, ends)
    requested = [min(*both) for both in zip(pads, ends, strict=True)]
    sides = place.integers((0, 0, *pads, 0, 0, *requested))
    padded = place.node("Pad", data, sides, place.numbers(0))
    beyond = [end - done for end, done in zip(ends, requested, strict=True)]
    return _pooled(place, padded, strides, zeros, beyond)


def _pooled(
    place: OperatorWriter,
    data: str,
    strides: tuple[int, ...],
    pads: Sequence[int],
    ends: Sequence[int],
) -> str:
    """Write the node; raises NotInOnnx for padding that runtimes refuse."""
    p = place.prop.parameters
    if any(max(both) >= size for *both, size in zip(pads, ends, p.kernel, strict=True)):
        raise NotInOnnx(_OUTSIDE)
    kind, sides = _POOLING[p.pool_type], (*pads, *ends)
    return place.node(kind, data, kernel_shape=p.kernel, strides=strides, pads=sides)


def _ends(
    place: OperatorWriter, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]
) -> list[int]:
    sizes, windows = place.shapes[0][2:], place.output_shapes[0][2:]
    return [
        max(0, (count - 1) * step + extent - size - pad)
        for size, count, extent, step, pad in zip(
            sizes, windows, kernel, strides, pads, strict=True
        )
    ]


@translates("LRN")
def local_response(place: OperatorWriter) -> str:
    """Translate to LRN, whose bias is MXNet's knorm."""
    p = place.prop.parameters
    numbers = {"alpha": float(p.alpha), "beta": float(p.beta), "bias": float(p.knorm)}
    return place.node("LRN", place.inputs[0], size=int(p.nsize), **numbers)


@translates("Embedding")
def embedding(place: OperatorWriter) -> str:
    """Translate to Gather; as in MXNet, indices out of range are clamped."""
    p = place.prop.parameters
    numbers = place.node("Cast", place.inputs[0], to=7)
    last = place.array(np.array(p.input_dim - 1, np.int64))
    first = place.array(np.array(0, np.int64))
    return place.node("Gather", place.inputs[1], place.node("Clip", numbers, first, last))


@translates("Dropout")
def dropout(place: OperatorWriter) -> str:
    """Translate to Identity: inference drops nothing."""
    if place.prop.parameters.mode != "training":
        raise NotInOnnx("mode always")
    return place.node("Identity", place.inputs[0])


@translates("SoftmaxOutput")
def softmax_output(place: OperatorWriter) -> str:
    """Translate to Softmax: the probabilities, which do not depend on the label."""
    p, data, shape = place.prop.parameters, place.inputs[0], place.shapes[0]
    if p.multi_output:
        return place.node("Softmax", data, axis=1)
    if p.preserve_shape or len(shape) <= _FLATTENED_RANK:
        return place.node("Softmax", data, axis=-1)
    rows = place.node("Softmax", place.node("Flatten", data, axis=1), axis=-1)
    return place.reshape(rows, place.free_shapes[0])


@translates("LinearRegressionOutput", "MAERegressionOutput", "MakeLoss", "BlockGrad", "_copy")
def identity(place: OperatorWriter) -> str:
    """Translate to Identity."""
    return place.node("Identity", place.inputs[0])


@translates("LogisticRegressionOutput")
def logistic(place: OperatorWriter) -> str:
    """Translate to Sigmoid."""
    return place.node("Sigmoid", place.inputs[0])
