"""Regression outputs beyond the table of rows: label shapes, garbage, the order of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inference import contradiction
from operator_harness import BackwardData, all_implementations, backward, forward
from operator_row import Row

from mxrun.base.tensor import PartialShape
from mxrun.operator.property import GradientKind, PartialShapes
from mxrun.operator.register import create, implementations

OPERATORS = ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput")
every_operator = pytest.mark.parametrize("operator", OPERATORS)


@pytest.mark.parametrize(
    ("data", "label", "expected"),
    [
        ((4, 3), None, [(4, 3), (4, 3)]),
        ((4, 1), None, [(4, 1), (4,)]),
        ((4, 1), (4,), [(4, 1), (4,)]),
        ((4, 1), (4, 1), [(4, 1), (4, 1)]),
        ((4,), (4, 1), [(4,), (4, 1)]),
        ((4, 3, 1), (4, 3), [(4, 3, 1), (4, 3)]),
        ((None, 3), (4, None), [(4, 3), (4, 3)]),
        ((None, None), None, [(None, None), None]),
        (None, (4, 3), [None, (4, 3)]),
    ],
)
def test_P2_labels_may_leave_out_axes_of_size_one_at_the_end(
    data: PartialShape, label: PartialShape, expected: PartialShapes
) -> None:
    prop = create("LinearRegressionOutput", {})
    assert prop.infer_shape([data, label], [None, None]).inputs == expected


@pytest.mark.parametrize(
    ("data", "label", "argument"),
    [
        ((4, 3), (4,), "data"),
        ((4, 3), (5, 3), "label"),
        ((4,), (4, 2), "label"),
        ((), None, "data"),
    ],
)
def test_P3_other_labels_contradict(data: PartialShape, label: PartialShape, argument: str) -> None:
    assert contradiction("MAERegressionOutput", {}, [data, label]).argument == argument


@every_operator
def test_P11_the_loss_is_hidden_and_labels_have_no_gradient(operator: str) -> None:
    prop = create(operator, {"use_sample_weight": True})
    assert prop.list_arguments() == ("data", "label", "sample_weight")
    assert (prop.list_outputs(), prop.num_visible_outputs) == (("output", "loss"), 1)
    assert prop.loss_output == 1
    zero = GradientKind.ZERO
    assert prop.list_gradients() == (GradientKind.COMPUTES, zero, zero)
    types = prop.infer_type([None, None, None], ["float64", None])
    assert types == (["float64", "float32", "float32"], ["float64", "float64"])
    reads = prop.declare_backward_dependency("gh", "abc", "yz")
    assert set(reads) == {"b", "c", "y"}


@every_operator
def test_a_weight_of_zero_silences_a_row_of_garbage(operator: str) -> None:
    row = Row(operator, {"use_sample_weight": True}, (3, 4))
    clean = row.inputs("float32")
    clean[1], clean[2][:] = clean[0] / 2, [1, 0, 1]
    padded = [array.copy() for array in clean]
    padded[0][1], padded[1][1] = [3e38, -3e38, np.nan, 0], [-3e38, np.inf, 0, 1]
    for implementation in all_implementations(row.create()):
        results = []
        for inputs in (clean, padded):
            run = forward(implementation, row.create(), inputs, row.blank_outputs("float32"))
            assert run is not None
            data = BackwardData(run.outputs, inputs, run.outputs)
            blank: list[Any] = [np.full_like(array, np.nan) for array in inputs]
            gradient = backward(implementation, row.create(), data, blank, run)[0]
            results.append((run.outputs[1].tobytes(), np.delete(gradient, 1, 0).tobytes()))
            np.testing.assert_array_equal(gradient[1], 0)
        assert results[0] == results[1]


@every_operator
def test_the_loss_has_the_same_bits_whatever_the_threads(operator: str) -> None:
    row = Row(operator, {}, (96, 1000))
    inputs = row.inputs("float32")
    inputs[1] = row.inputs("float32", seed=1)[0]
    compiled = implementations(operator)["jit"]
    runs = [
        forward(compiled, row.create(), inputs, row.blank_outputs("float32"), threads=threads)
        for threads in (1, 2, 3)
    ]
    bits = {run.outputs[1].tobytes() for run in runs if run is not None}
    assert len(runs) == 3
    assert len(bits) == 1


def test_the_logistic_loss_survives_saturation() -> None:
    row = Row("LogisticRegressionOutput", {}, (4,))
    inputs = [np.array([200, -200, 200, -200], "float32"), np.array([1, 0, 0, 1], "float32")]
    for implementation in all_implementations(row.create()):
        run = forward(implementation, row.create(), inputs, row.blank_outputs("float32"))
        assert run is not None
        np.testing.assert_array_equal(run.outputs[0], [1, 0, 1, 0])
        np.testing.assert_allclose(run.outputs[1], [400])
