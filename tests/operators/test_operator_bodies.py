"""Every operator row: values by an independent formula, and the selected implementation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from families import optimizer_update
from families.softmax_output import softmax_gradient
from operator_harness import (
    BackwardData,
    ForwardRun,
    all_implementations,
    backward,
    forward,
)
from operator_row import Row
from operator_rows import DIFFERENTIABLE, EVALUATED, REFERENCES, ROWS

from mxrun.operator.kernel import OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty, Implementation, implementations

Array = npt.NDArray[Any]
NULL, WRITE, INPLACE, ADD = OpReqType

UPDATES = list(optimizer_update.REFERENCES)

every_row = pytest.mark.parametrize("row", ROWS, ids=str)
differentiable = pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)


def computed(row: Row, inputs: list[Array], implementation: Implementation = NUMPY) -> ForwardRun:
    run = forward(
        implementation,
        row.create(),
        inputs,
        row.blank_outputs(dtype_of(inputs)),
        is_train=row.is_train,
    )
    assert run is not None
    return run


def dtype_of(inputs: list[Array]) -> str:
    """float32 or float64, whichever the row was drawn in."""
    wide = any(array.dtype == np.float64 for array in inputs)
    return "float64" if wide else "float32"


def backward_data(row: Row, inputs: list[Array], run: ForwardRun) -> BackwardData:
    random = np.random.default_rng(7)
    out_grad = [random.standard_normal(output.shape).astype(output.dtype) for output in run.outputs]
    return BackwardData(out_grad, inputs[: len(row.create().list_arguments())], run.outputs)


def blank_gradients(prop: AnyProperty, inputs: list[Array], value: float = np.nan) -> list[Array]:
    return [
        np.full_like(array, value if np.issubdtype(array.dtype, np.floating) else 0)
        for array in inputs[: len(prop.list_arguments())]
    ]


def computed_gradients(prop: AnyProperty) -> list[int]:
    kinds = prop.list_gradients()
    return [index for index, kind in enumerate(kinds) if kind is GradientKind.COMPUTES]


@every_row
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_O1_forward_equals_an_independent_formula(row: Row, dtype: str) -> None:
    inputs = row.inputs(dtype)
    references = REFERENCES if row.is_train else {**REFERENCES, **EVALUATED}
    expected = references[row.operator](row.create().parameters, inputs)
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    for got, want in zip(computed(row, inputs).outputs, expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("row", [r for r in ROWS if r.operator == "SoftmaxOutput"], ids=str)
def test_O1_softmax_output_has_the_gradient_of_mxnets_rules(row: Row) -> None:
    inputs = row.inputs("float64")
    run = computed(row, inputs)
    data = backward_data(row, inputs, run)
    gradient = backward(NUMPY, row.create(), data, blank_gradients(row.create(), inputs), run)[0]
    expected = softmax_gradient(row, inputs, data.out_grad[0])
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("operator", "backend"),
    [
        *((operator, "jit") for operator in UPDATES),
        ("broadcast_add", "jit"),
        ("SoftmaxOutput", "jit"),
    ],
)
def test_P12_a_compiled_body_serves_float32(operator: str, backend: str) -> None:
    compiled = implementations(operator)[backend]
    served = [
        row
        for row in ROWS
        if row.operator == operator
        and forward(
            compiled,
            row.create(),
            row.inputs("float32"),
            row.blank_outputs("float32"),
            is_train=row.is_train,
        )
    ]
    assert len(served) >= 5
    assert all(
        forward(
            compiled,
            row.create(),
            row.inputs("float64"),
            row.blank_outputs("float64"),
            is_train=row.is_train,
        )
        is None
        for row in served
    )


@pytest.mark.parametrize("classes", [2, 10, 17])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_data_that_are_not_finite_give_a_loss_that_is_not(value: float, classes: int) -> None:
    """At any position in a row, and for any class of its label."""
    row = Row("SoftmaxOutput", {}, (1, classes))
    for implementation in all_implementations(row.create()):
        for place, label in itertools.product(range(classes), repeat=2):
            inputs = [np.zeros((1, classes), np.float32), np.array([label], np.int32)]
            inputs[0][0, place] = value
            run = forward(
                implementation,
                row.create(),
                inputs,
                row.blank_outputs("float32"),
                is_train=row.is_train,
            )
            if run is not None:
                assert np.isnan(run.outputs[1][0]), implementation.name


@pytest.mark.parametrize("row", [row for row in ROWS if row.operator in UPDATES], ids=str)
def test_P12_compiled_updates_have_the_bits_of_the_readable_body(row: Row) -> None:
    inputs = row.inputs("float32")
    compiled = computed(row, inputs, implementations(row.operator)["jit"])
    for got, want in zip(compiled.outputs, computed(row, inputs).outputs, strict=True):
        assert got.tobytes() == want.tobytes()
