"""CTCLoss of labels that name the blank or have no probability, and of data far from 0."""

from __future__ import annotations

import numpy as np
import pytest
from operator_harness import Array, forward, implementations

from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import Implementation, create

STEPS, BATCH, CLASSES = 7, 3, 3


every_body = pytest.mark.parametrize(
    "body", [NUMPY, implementations("CTCLoss")["jit"]], ids=lambda b: b.name
)


@every_body
@pytest.mark.parametrize(("blank", "of_the_blank"), [("first", 0), ("last", CLASSES - 1)])
def test_the_gradient_is_that_of_the_loss(
    body: Implementation, blank: str, of_the_blank: int
) -> None:
    """No alignment's share is counted twice."""
    prop = create("CTCLoss", {"blank_label": blank, "use_label_lengths": True})
    data = np.random.default_rng(0).standard_normal((STEPS, BATCH, CLASSES)).astype(np.float32)
    label = np.array([[1, of_the_blank, 1], [of_the_blank, 1, 1], [1, 1, of_the_blank]], np.int32)
    lengths = np.array([3, 2, 3], np.int32)

    def outputs(moved: Array) -> list[Array]:
        blank_outputs = [np.zeros(BATCH, np.float32), np.zeros_like(data)]
        run = forward(body, prop, [moved, label, lengths], blank_outputs)
        assert run is not None
        return list(run.outputs)

    way = np.random.default_rng(1).standard_normal(data.shape).astype(np.float32)
    along = (outputs(data + 0.01 * way)[0] - outputs(data - 0.01 * way)[0]) / 0.02
    gradient = outputs(data)[1]
    np.testing.assert_allclose((gradient * way).sum(axis=(0, 2)), along, rtol=5e-3, atol=1e-3)
    np.testing.assert_allclose(gradient.sum(axis=2), 0, atol=1e-5)


def loss_and_gradient(body: Implementation, data: Array, label: Array) -> list[Array]:
    blank_outputs = [np.zeros(len(label), np.float32), np.zeros_like(data)]
    run = forward(body, create("CTCLoss", {}), [data, label], blank_outputs)
    assert run is not None
    return list(run.outputs)


@every_body
def test_a_label_of_probability_0_has_the_gradient_of_the_softmax(body: Implementation) -> None:
    """As in MXNet; the other sample is not changed."""
    data = np.random.default_rng(2).standard_normal((5, 2, 4)).astype(np.float32)
    label = np.array([[2, 1], [3, 1]], np.int32)
    other = loss_and_gradient(body, data[:, 1:].copy(), label[1:])
    data[:, 0, 2] = -np.inf
    loss, gradient = loss_and_gradient(body, data, label)
    exponential = np.exp(data[:, 0])
    np.testing.assert_array_equal(loss, [np.inf, other[0][0]])
    expected = exponential / exponential.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(gradient[:, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(gradient[:, 1], other[1][:, 0])


@every_body
@pytest.mark.parametrize("offset", [1e4, -1e5])
def test_data_with_an_offset_have_the_gradient_of_data_without_it(
    body: Implementation, offset: float
) -> None:
    data = np.random.default_rng(3).integers(-40, 40, (9, 2, 20)).astype(np.float32) / 8
    label = np.array([[2, 7], [3, 3]], np.int32)
    expected = loss_and_gradient(body, data, label)
    for found, want in zip(
        loss_and_gradient(body, data + np.float32(offset), label), expected, strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
