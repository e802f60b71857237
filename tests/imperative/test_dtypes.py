"""Operators of arrays whose data types differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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


def test_bfloat16_arrays_are_copied_assigned_and_saved(tmp_path: Path) -> None:
    values = [[1.5, -2.0], [0.5, 3.0]]
    x = nd.array(values, dtype="bfloat16")
    again = nd.array(x)
    from_numpy = nd.array(x.asnumpy())
    part = nd.zeros((2, 2), dtype="bfloat16")
    part[0] = x.asnumpy()[0]
    nd.save(tmp_path / "file", {"x": x, "beside": nd.ones((3,), dtype="int8")})
    loaded = nd.load(tmp_path / "file")["x"]
    for each, dtype in (again, "bfloat16"), (from_numpy, "float32"), (loaded, "bfloat16"):
        assert (each.dtype, each.tolist()) == (dtype, values)
    assert part.tolist() == [values[0], [0, 0]]


def test_a_name_that_the_format_keeps_for_itself_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="save"):
        nd.save(tmp_path / "file", {"__metadata__": nd.ones((2,))})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64"])
def test_strided_and_foreign_inputs_of_numpy_are_copied(dtype: str) -> None:
    values = np.arange(12).reshape(3, 4)[::2, ::-2].astype(dtype)
    for given in values, np.asfortranarray(values), values.astype(values.dtype.newbyteorder(">")):
        made = nd.array(given, dtype=dtype)
        assert (made.dtype, made.tolist()) == (dtype, values.tolist())


def test_unknown_dtypes_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"unknown data type 'foo'; known: float32, .*, bfloat16"):
        nd.zeros((2,), dtype="foo")
    with pytest.raises(UserError, match="did you mean 'bfloat16'"):
        nd.zeros((2,), dtype="bfloat")
