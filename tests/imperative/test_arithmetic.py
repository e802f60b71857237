"""Operators of arrays with numbers, and the engines that run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxrun
from mxrun import autograd, nd
from mxrun.imperative.arrays import binary
from mxrun.imperative.arrays.binary import BinaryOperation
from mxrun.runtime.engine.default import using_engine
from mxrun.runtime.engine.naive import NaiveEngine

OPERATIONS = sorted(name for name in nd.__all__ if isinstance(getattr(nd, name), BinaryOperation))
NUMBERS = (0.3, -1.7, 2, 0.0, -0.0, 1e-30)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_numbers_give_the_bits_of_parameters_after_many_too(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number becomes an array after many different ones, but for powers."""
    operation: BinaryOperation = getattr(nd, name)
    x = nd.array([0.25, 1.7, 3, -2.5, 0], dtype=dtype)

    def results() -> list[bytes]:
        found = []
        for number in NUMBERS:
            # Integers are not divided by 0.
            if not (dtype == "int32" and name in ("divide", "true_divide", "modulo", "power")):
                found.append(operation(x, number).asnumpy().tobytes())
                found.append(operation(number, x).asnumpy().tobytes())
        return found

    before = results()
    monkeypatch.setattr(binary, "_MAX_SCALARS", 0)
    monkeypatch.setattr(binary, "_scalars", {})
    assert results() == before


def test_numbers_that_differ_at_every_call_prepare_no_operators() -> None:
    x = nd.ones((3,))
    for step in range(200):
        x = x * (1 + step / 1000)
        x -= step * 1e-4
    known = binary._scalars
    assert 0 < len(known["_mul_scalar"]) <= binary._MAX_SCALARS
    assert np.isfinite(x.asnumpy()).all()


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_may_be_infinite(number: float) -> None:
    x, values = nd.array([1, -2, 0]), np.array([1, -2, 0], "float32")
    with np.errstate(all="ignore"):
        for got, want in (
            (x + number, values + np.float32(number)),
            (number - x, np.float32(number) - values),
            (x * number, values * np.float32(number)),
            (x / number, values / np.float32(number)),
            (x < number, (values < number).astype("float32")),
        ):
            np.testing.assert_array_equal(got.asnumpy(), want)


@pytest.mark.parametrize("operand", [None, "a", [1, 2], object()])
def test_other_operands_are_type_errors(operand: Any) -> None:
    x = nd.ones((2,))
    for operation in (
        lambda: x + operand,
        lambda: operand - x,
        lambda: x @ operand,
        lambda: x // operand,
        lambda: x == operand,
        lambda: x < operand,
        lambda: nd.maximum(x, operand),
        lambda: nd.maximum(1, 2),
    ):
        with pytest.raises(TypeError):
            operation()


def test_numbers_may_be_numpys() -> None:
    x = nd.array([1, 2])
    for number in (np.float64(2), np.float32(2), np.int64(2), np.True_ + np.True_ + np.int8(1)):
        assert (x * number).dtype == "float32"
    np.testing.assert_array_equal((np.float64(3) - x).asnumpy(), [2, 1])
    np.testing.assert_array_equal((np.float32(2) * x).asnumpy(), [2, 4])


def test_in_place_operators_keep_the_memory() -> None:
    x = nd.array([[1, 2], [3, 4]])
    chunk, row = x.chunk, x[1]
    x += 1
    x -= nd.array([1, 0])
    x *= 2
    x /= 4
    x **= 2
    x %= 3
    assert x.chunk is chunk
    want = ((np.array([[1, 3], [3, 5]], "float32") * 2 / 4) ** 2) % 3
    np.testing.assert_allclose(x.asnumpy(), want, 1e-6)
    np.testing.assert_allclose(row.asnumpy(), want[1], 1e-6)
    whole = nd.array([5, 7], dtype="int32")
    whole += 1.7
    whole /= 2
    assert whole.tolist() == [3, 4]


def test_the_naive_engine_runs_the_same_operations() -> None:
    def computed() -> bytes:
        mxrun.random.seed(1)
        x = nd.random.normal(shape=(7, 5))
        x.attach_grad()
        with autograd.record():
            y = (nd.softmax(x @ x.T)[1:] * 2).sum()
        y.backward()
        x[2] = y
        x += x.grad
        values: bytes = x.asnumpy().tobytes()
        return values

    want = computed()
    engine = NaiveEngine()
    with using_engine(engine):
        assert computed() == want
    engine.close()
