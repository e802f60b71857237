"""Operators of arrays whose data types differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mxrun import UserError, nd

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "broadcast": lambda left, right: left * right[0:1],
    ">": lambda left, right: left > right,
    "maximum": nd.maximum,
    "dot": nd.dot,
    "concat": lambda left, right: nd.concat(left, right, dim=0),
    "add_n": nd.add_n,
    "where": lambda left, right: nd.where(left, left, right),
    "FullyConnected": lambda x, w: nd.FullyConnected(x, w, no_bias=True, num_hidden=2),
}


@pytest.mark.parametrize(
    "dtypes", [("float32", "int32"), ("int32", "float32"), ("float32", "float64")]
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operators_refuse_arrays_of_several_dtypes(name: str, dtypes: tuple[str, str]) -> None:
    left, right = (nd.array([[1.5, 2.5], [0.5, 3.5]], dtype=each) for each in dtypes)
    with pytest.raises(UserError, match="several dtypes"):
        OPERATIONS[name](left, right)


def test_labels_and_ids_are_converted_whatever_stands_beside_them() -> None:
    ids, table = nd.array([[1.0, 0.0]]), nd.array([[1, 2], [3, 4]], dtype="int32")
    found = nd.Embedding(ids, table, input_dim=2, output_dim=2)
    assert (found.dtype, found.asnumpy().tolist()) == ("int32", [[[3, 4], [1, 2]]])
    labels = nd.array([1.0], dtype="float64")
    expected = nd.SoftmaxOutput(nd.ones((1, 2)), nd.array([1])).asnumpy().tolist()
    assert nd.SoftmaxOutput(nd.ones((1, 2)), labels).asnumpy().tolist() == expected
