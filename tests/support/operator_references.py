"""Independent formulas: what each operator computes, written as differently as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Array = npt.NDArray[Any]
Reference = Callable[[Any, list[Array]], list[Array]]


def convolution(p: Any, inputs: list[Array]) -> list[Array]:
    """Windows of the padded data, contracted with the weight by einsum, group by group."""
    data, weight, *bias = inputs
    rank = len(p.kernel)
    stride, dilate = p.stride or (1,) * rank, p.dilate or (1,) * rank
    padded = np.pad(data, [(0, 0), (0, 0), *((pad, pad) for pad in p.pad or (0,) * rank)])
    extents = [d * (k - 1) + 1 for d, k in zip(dilate, p.kernel, strict=True)]
    windows = sliding_window_view(padded, extents, axis=tuple(range(2, 2 + rank)))
    steps = [*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilate)]
    windows = windows[(slice(None), slice(None), *steps)]
    y, k = "yxz"[:rank], "kji"[:rank]
    parts = [
        np.einsum(f"nc{y}{k},oc{k}->no{y}", piece, kernel)
        for piece, kernel in zip(
            np.split(windows, p.num_group, axis=1), np.split(weight, p.num_group), strict=True
        )
    ]
    result = np.concatenate(parts, axis=1)
    for channel, value in enumerate(bias[0] if bias else ()):
        result[:, channel] += value
    return [result]


def fully_connected(p: Any, inputs: list[Array]) -> list[Array]:
    """Inner products, one row and one weight row at a time."""
    data, weight, *bias = inputs
    lead = data.shape[:1] if p.flatten else data.shape[:-1]
    result = np.empty((*lead, p.num_hidden), data.dtype)
    for index in np.ndindex(*lead):
        for hidden in range(p.num_hidden):
            offset = bias[0][hidden] if bias else 0
            result[(*index, hidden)] = np.dot(data[index].ravel(), weight[hidden]) + offset
    return [result]


def activation(p: Any, inputs: list[Array]) -> list[Array]:
    """Python's math, one element at a time."""
    functions = {
        "relu": lambda x: x if x > 0 else 0.0,
        "sigmoid": lambda x: 0.5 * (1 + math.tanh(x / 2)),
        "softrelu": lambda x: math.log(1 + math.exp(x)),
        "softsign": lambda x: x / (1 + x if x > 0 else 1 - x),
        "tanh": lambda x: 1 - 2 / (math.exp(2 * x) + 1),
    }
    function = functions[p.act_type]
    flat = [function(float(x)) for x in inputs[0].ravel()]
    return [np.array(flat, inputs[0].dtype).reshape(inputs[0].shape)]


def pooling(p: Any, inputs: list[Array]) -> list[Array]:
    """One window at a time, cut out of the data by Python slices."""
    (data,) = inputs
    sizes = data.shape[2:]
    rank = len(sizes)
    kernel, stride, pad = p.kernel, p.stride or (1,) * rank, p.pad or (0,) * rank
    if p.global_pool:
        kernel, stride, pad = sizes, (1,) * rank, (0,) * rank
    counts = []
    for size, k, s, margin in zip(sizes, kernel, stride, pad, strict=True):
        room = size + 2 * margin - k
        rounded = {"valid": room // s + 1, "full": math.ceil(room / s) + 1}
        counts.append(rounded.get(p.pooling_convention, math.ceil(size / s)))
    result = np.empty((*data.shape[:2], *counts), data.dtype)
    for index in np.ndindex(*counts):
        area, cut = 1, []
        for i, size, k, s, margin in zip(index, sizes, kernel, stride, pad, strict=True):
            start, stop = i * s - margin, i * s - margin + k
            inside = range(max(start, 0), min(stop, size))
            cut.append(slice(inside.start, inside.stop))
            padded = len(range(start, min(stop, size + margin)))
            area *= len(inside) if p.count_include_pad is False else padded
        window = data[(slice(None), slice(None), *cut)].reshape(*data.shape[:2], -1)
        result[(slice(None), slice(None), *index)] = _pooled(p, window, area)
    return [result]


def _pooled(p: Any, window: Array, area: int) -> Array:
    if p.pool_type == "max":
        return np.asarray(window.max(axis=-1))
    if p.pool_type == "lp":
        total = sum(window[..., i] ** p.p_value for i in range(window.shape[-1]))
        return np.asarray(np.sign(total) * np.abs(total) ** (1 / p.p_value))
    total = np.asarray(window.sum(axis=-1))
    return total / area if p.pool_type == "avg" else total


def flatten(p: Any, inputs: list[Array]) -> list[Array]:
    """Elements in row-major order."""
    rows = [list(row.flat) for row in inputs[0]]
    return [np.array(rows, inputs[0].dtype)]


def elementwise_add(p: Any, inputs: list[Array]) -> list[Array]:
    """One pair at a time."""
    pairs = zip(inputs[0].flat, inputs[1].flat, strict=True)
    return [np.array([a + b for a, b in pairs]).reshape(inputs[0].shape)]


def softmax_samples(p: Any, data: Array, label: Array) -> Iterator[tuple[Any, Any, int]]:
    """(where a sample's classes are in data, its label or probabilities, its row)."""
    probabilities = label.shape == data.shape
    rows = label.reshape(data.shape[0], -1)
    if p.multi_output:
        for n in range(data.shape[0]):
            for number, index in enumerate(np.ndindex(*data.shape[2:])):
                place = (n, slice(None), *index)
                yield place, label[place] if probabilities else rows[n, number], n
    elif p.preserve_shape:
        for index in np.ndindex(*data.shape[:-1]):
            number = np.ravel_multi_index(index, data.shape[:-1])
            yield index, label[index] if probabilities else label.flat[number], index[0]
    else:
        for n in range(data.shape[0]):
            yield n, label[n] if probabilities else label.flat[n], n


def target_of(p: Any, label: Any, classes: int) -> tuple[list[float], float]:
    """The target probabilities of one sample, and the part outside the classes."""
    if np.ndim(label):
        return list(np.ravel(label)), 0.0
    if p.use_ignore and int(label) == int(p.ignore_label):
        return [0.0] * classes, 0.0
    smooth = 0.0 if p.multi_output else p.smooth_alpha
    target = [smooth / max(classes - 1, 1)] * classes
    if not 0 <= int(label) < classes:
        return target, 1 - smooth
    target[int(label)] = 1 - smooth
    return target, 0.0


def softmax_output(p: Any, inputs: list[Array]) -> list[Array]:
    """Softmax by its definition and the loss, one sample at a time."""
    data, label, *weight = inputs
    output, loss = np.empty_like(data), 0.0
    tiny = float(np.finfo(data.dtype).tiny)
    for place, wanted, row in softmax_samples(p, data, label):
        values = [math.exp(value) for value in data[place].ravel()]
        total = math.fsum(values)
        probabilities = [value / total for value in values]
        output[place] = np.reshape(probabilities, data[place].shape)
        target, missing = target_of(p, wanted, len(values))
        terms = [-t * math.log(q) for t, q in zip(target, probabilities, strict=True)]
        loss += math.fsum([*terms, -missing * math.log(tiny)]) * float(
            weight[0][row] if weight else 1
        )
    return [output, np.array([loss], data.dtype)]


def sgd(p: Any, inputs: list[Array], momentum: bool = False) -> list[Array]:
    """MXNet's SGDKernel and SGDMomKernel, one element at a time in the weight's type."""
    weight, grad = inputs[:2]
    kind = weight.dtype.type
    rate = kind(p.lr) * kind(inputs[-1][0]) if p.scheduled else kind(p.lr)
    updated, moments = np.empty_like(weight), np.empty_like(weight)
    for i in range(weight.size):
        gradient = kind(p.rescale_grad) * grad.flat[i]
        if p.clip_gradient >= 0:
            gradient = max(min(gradient, kind(p.clip_gradient)), -kind(p.clip_gradient))
        gradient = gradient + kind(p.wd) * weight.flat[i]
        step = rate * gradient
        if momentum:
            moments.flat[i] = kind(p.momentum) * inputs[2].flat[i] - step
            updated.flat[i] = weight.flat[i] + moments.flat[i]
        else:
            updated.flat[i] = weight.flat[i] - step
    return [updated, moments] if momentum else [updated]


REFERENCES: dict[str, Reference] = {
    "Convolution": convolution,
    "FullyConnected": fully_connected,
    "Activation": activation,
    "Pooling": pooling,
    "Flatten": flatten,
    "elemwise_add": elementwise_add,
    "SoftmaxOutput": softmax_output,
    "sgd_update": sgd,
    "sgd_mom_update": lambda p, inputs: sgd(p, inputs, momentum=True),
}
