"""CTCLoss of labels that name the blank: no alignment's share is counted twice."""

from __future__ import annotations

import numpy as np
import pytest
from operator_harness import Array, forward, implementations

from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import Implementation, create

STEPS, BATCH, CLASSES = 7, 3, 3


@pytest.mark.parametrize("body", [NUMPY, implementations("CTCLoss")["jit"]], ids=lambda b: b.name)
@pytest.mark.parametrize(("blank", "of_the_blank"), [("first", 0), ("last", CLASSES - 1)])
def test_the_gradient_is_that_of_the_loss(
    body: Implementation, blank: str, of_the_blank: int
) -> None:
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
