"""NaN and infinity pass through every implementation as through the NumPy body.

A kernel that turns NaN into a number hides that a network has diverged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import (
    BackwardData,
    ForwardRun,
    all_implementations,
    backward,
    forward,
)
from operator_row import Row
from operator_rows import DIFFERENTIABLE, ROWS

from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import Implementation, create

Array = npt.NDArray[Any]
VALUES = (np.nan, np.inf, -np.inf)
KINDS = {"NaN": np.isnan, "+inf": np.isposinf, "-inf": np.isneginf}

# Operators whose kernel and body have non-finite values in different places: a tensor with one in
# one of them must contain NaN or infinity in the other.
_OF_A_ROW = "oneDNN's softmax has NaN where the data have it, the body in the whole row"
_OF_PADDING = "the body multiplies padding, zero times NaN is NaN; oneDNN leaves padding out"
_OF_STATISTICS = "the loop's mean of data with an infinity is NaN, the body's is the infinity"
_OF_STRIPS = "the loop multiplies some keys that are not read, zero times infinity is NaN"
ELSEWHERE = {
    "SoftmaxOutput": _OF_A_ROW,
    "Convolution": _OF_PADDING,
    "Deconvolution": _OF_PADDING,
    "BatchNorm": _OF_STATISTICS,
    "_batch_norm_limited": _OF_STATISTICS,
    "scaled_dot_product_attention": _OF_STRIPS,
    "RNN": "the loops multiply weights by the zeros of padding, beside sequences that go on",
    "_power_scalar": "NumPy's power 0.5 is a square root, which of -inf is NaN and not inf",
}


# Made for inference alone, where parameters are those of a checkpoint, which are finite: oneDNN's
# limits make numbers of NaN.
HIDING = {"_convolution_fused"}


def floating(arrays: list[Array]) -> list[int]:
    return [i for i, array in enumerate(arrays) if array.dtype.kind == "f" and array.size]


def poisoned(arrays: list[Array]) -> Iterator[list[Array]]:
    """Yield the arrays with each value in turn at the first, middle and last position of each."""
    for which in floating(arrays):
        for value in VALUES:
            flat = arrays[which].flatten()
            flat[[0, flat.size // 2, -1]] = value
            yield [*arrays[:which], flat.reshape(arrays[which].shape), *arrays[which + 1 :]]


def lost(row: Row, expected: list[Array], got: list[Array]) -> list[str]:
    """Return the non-finite values of the NumPy body that the implementation lacks."""
    found = []
    for index, (want, have) in enumerate(zip(expected, got, strict=True)):
        if want.dtype.kind != "f" or (row.operator in ELSEWHERE and not np.isfinite(have).all()):
            continue
        for name, test in KINDS.items():
            for place in np.argwhere(test(want) & ~test(have))[:1]:
                found.append(f"tensor {index} {place}: {have[tuple(place)]} instead of {name}")
    return found


def run(row: Row, implementation: Implementation, inputs: list[Array]) -> ForwardRun | None:
    outputs = row.blank_outputs("float32", 0.0)
    return forward(implementation, row.create(), inputs, outputs, is_train=row.is_train)


def pads(row: Row) -> bool:
    """Return whether a weight may be multiplied with padding only."""
    return ELSEWHERE.get(row.operator) == _OF_PADDING and any(row.create().parameters.pad)


@pytest.mark.parametrize("row", [row for row in ROWS if row.operator not in HIDING], ids=str)
@np.errstate(all="ignore")
def test_forward(row: Row) -> None:
    inputs = row.inputs("float32")
    for given in poisoned(inputs):
        if pads(row) and np.isfinite(given[0]).all():
            continue
        expected = run(row, NUMPY, given)
        assert expected is not None
        for implementation in all_implementations(row.create()):
            got = run(row, implementation, given)
            if got is not None:
                assert not lost(row, expected.outputs, got.outputs), implementation.name


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
@np.errstate(all="ignore")
def test_backward(row: Row) -> None:
    """For non-finite values in the output's gradient, and in the inputs of forward."""
    inputs, prop = row.inputs("float32"), row.create()
    random = np.random.default_rng(7)
    shapes = [output.shape for output in row.blank_outputs("float32")]
    gradients = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    cases = [(inputs, out_grad) for out_grad in poisoned(gradients)]
    cases += [(given, gradients) for given in poisoned(inputs)]
    arguments = len(prop.list_arguments())
    for given, out_grad in cases:
        if pads(row) and np.isfinite(given[0]).all() and np.isfinite(out_grad[0]).all():
            continue
        found = {}
        for implementation in all_implementations(prop):
            done = run(row, implementation, given)
            if done is not None:
                data = BackwardData(out_grad, given[:arguments], done.outputs)
                before = [np.zeros_like(array) for array in given[:arguments]]
                found[implementation.name] = backward(implementation, prop, data, before, done)
        expected = found.pop(NUMPY.name)
        for name, got in found.items():
            assert not lost(row, expected, got), name


@pytest.mark.parametrize("outside", [-1, 3])
@np.errstate(all="ignore")
def test_the_loss_of_a_nan_row_with_a_label_outside_the_classes_is_nan(outside: int) -> None:
    data = np.array([[1, 2, 3], [1, np.nan, 3]], np.float32)
    inputs = [data, np.array([0, outside], np.int32)]
    prop = create("SoftmaxOutput", {})
    losses = {}
    for implementation in all_implementations(prop):
        outputs = [np.zeros((2, 3), np.float32), np.zeros(1, np.float32)]
        done = forward(implementation, prop, inputs, outputs, is_train=True)
        if done is not None:
            losses[implementation.name] = float(done.outputs[1][0])
    assert NUMPY.name in losses
    assert all(map(math.isnan, losses.values())), losses


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [("gelu", {}), ("gelu", {"approximate": "tanh"}), ("silu", {}), ("sigmoid", {}), ("tanh", {})],
    ids=str,
)
def test_gradients_of_far_finite_data_are_those_of_a_step(
    operator: str, parameters: dict[str, object]
) -> None:
    """No square or cube of data that overflows may become NaN."""
    prop = create(operator, parameters)
    sizes = np.array([1e3, 1e10, 1e14, 1e19, 1e30, 3e38], np.float32)
    data = np.concatenate([-sizes, sizes])
    is_step = operator in ("gelu", "silu")
    for implementation in all_implementations(prop):
        done = forward(implementation, prop, [data], [np.zeros_like(data)])
        assert done is not None
        given = BackwardData([np.ones_like(data)], [data], done.outputs)
        (gradient,) = backward(implementation, prop, given, [np.zeros_like(data)], done)
        np.testing.assert_array_equal(gradient, (data > 0) * is_step)


@pytest.mark.parametrize("columns", [1, 3, 17])
def test_a_large_constant_row_has_no_gradient_through_its_norm(columns: int) -> None:
    prop = create("LayerNorm", {})
    # Its mean is exact.
    data = np.full((2, columns), 2.0**123, np.float32)
    inputs = [data, np.ones(columns, np.float32), np.zeros(columns, np.float32)]
    for implementation in all_implementations(prop):
        shapes = prop.infer_shape([each.shape for each in inputs], [None] * 3).outputs
        outputs = [np.zeros(shape, np.float32) for shape in shapes]
        done = forward(implementation, prop, inputs, outputs)
        assert done is not None
        given = BackwardData([np.ones_like(each) for each in done.outputs], inputs, done.outputs)
        before = [np.full_like(each, 7) for each in inputs]
        gradient = backward(implementation, prop, given, before, done)[0]
        np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("operator", ["SoftmaxOutput", "softmax_cross_entropy"])
@pytest.mark.parametrize("value", VALUES, ids=str)
@np.errstate(all="ignore")
def test_a_row_that_is_left_out_adds_nothing_whatever_is_in_it(operator: str, value: float) -> None:
    """By its label or its weight."""
    random = np.random.default_rng(0)
    data = random.standard_normal((3, 5)).astype(np.float32)
    rest = [np.array([1, -1, 4], np.int32), np.array([1, 1, 0], np.float32)]
    prop = create(operator, {"use_ignore": True, "use_sample_weight": True})
    poisoned_data = data.copy()
    poisoned_data[1:, 2] = value
    place = prop.loss_output
    for implementation in all_implementations(prop):
        results = []
        for given in (data, poisoned_data):
            inputs = [given, *rest]
            shapes = ((3, 5), (1,))[1 - place :]
            outputs = [np.zeros(shape, np.float32) for shape in shapes]
            done = forward(implementation, prop, inputs, outputs, is_train=True)
            assert done is not None
            grads = [np.ones_like(each) for each in outputs]
            arrays = BackwardData(grads, inputs, done.outputs)
            before = [np.full_like(each, 7) for each in inputs]
            gradient = backward(implementation, prop, arrays, before, done)[0]
            results.append((done.outputs[place], gradient))
        assert not results[1][1][1:].any(), implementation.name
        for clean, other in zip(*results, strict=True):
            np.testing.assert_array_equal(other, clean)


@pytest.mark.parametrize(
    ("operator", "parameters"), [("Embedding", {"input_dim": 3, "output_dim": 2}), ("take", {})]
)
def test_an_index_that_is_nan_selects_the_first_row(
    operator: str, parameters: dict[str, object]
) -> None:
    """As in MXNet, and without a warning."""
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    ids = np.array([np.nan, 1.5, -np.inf], np.float32)
    inputs = [ids, table] if operator == "Embedding" else [table, ids]
    done = forward(NUMPY, create(operator, parameters), inputs, [np.zeros((3, 2), np.float32)])
    assert done is not None
    np.testing.assert_array_equal(done.outputs[0], table[[0, 1, 0]])
