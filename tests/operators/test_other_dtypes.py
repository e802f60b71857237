"""Compiled implementations decline dtypes that they do not read, or compute them correctly."""

from __future__ import annotations

import numpy as np
import pytest
from operator_harness import all_implementations, forward
from operator_row import Row
from operator_rows import ROWS

from mxrun.operator.numpy_kernel import NUMPY


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_float64_is_declined_or_computed(row: Row) -> None:
    inputs = row.inputs("float64")
    expected = forward(NUMPY, row.create(), inputs, row.blank_outputs("float64"), is_train=False)
    assert expected is not None
    for implementation in all_implementations(row.create()):
        outputs = row.blank_outputs("float64")
        found = forward(implementation, row.create(), inputs, outputs, is_train=False)
        if found is not None:
            for own, reference in zip(found.outputs, expected.outputs, strict=True):
                np.testing.assert_allclose(own, reference, rtol=1e-9, atol=1e-9)
