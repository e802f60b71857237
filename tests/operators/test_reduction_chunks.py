"""Reductions and running sums computed in chunks: correct, with the same bits on any threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mxrun import library
from mxrun.contract.call import Conditions, forward
from mxrun.operator.register import create, implementations
from mxrun.operator.shape import require_complete

Array = npt.NDArray[Any]

# Few outputs; short and long runs of kept and reduced axes; sizes without small divisors.
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((100_003,), (0,)),
    ((3, 50_001), (1,)),
    ((40_000, 3), (0,)),
    ((50_021, 3), (0,)),
    ((30_001, 5), (1,)),
    ((1200, 97), (0,)),
    ((600, 9000), (0,)),
    ((40, 50, 70), (0, 2)),
    ((7, 11, 601, 3), (1, 3)),
    ((9, 2048, 4), (1,)),
    ((64, 3, 600), (0, 2)),
    ((700, 100), (1,)),
    ((30, 7, 60), (0, 2)),
)


def norm(data: Array, axis: tuple[int, ...]) -> Array:
    """The root of the sum of squares."""
    root: Array = np.sqrt(np.square(data).sum(axis=axis))
    return root


FORMULAS: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "nansum": np.nansum,
    "nanprod": np.nanprod,
    "max": np.max,
    "min": np.min,
    "norm": norm,
}


def results(name: str, parameters: dict[str, object], data: Array, threads: int) -> list[Array]:
    """The compiled operator's outputs."""
    library.load()
    prop = create(name, parameters)
    shapes = prop.infer_shape([data.shape], [None] * len(prop.list_outputs())).outputs
    outputs = [np.empty(require_complete(shape), np.float32) for shape in shapes]
    run = forward(
        implementations(name)["jit"], prop, [data], outputs, conditions=Conditions(threads=threads)
    )
    assert run is not None
    return run.outputs


def check(name: str, parameters: dict[str, object], data: Array, expected: list[Array]) -> None:
    """Compare with formulas in float64, and different threads with each other."""
    alone = results(name, parameters, data, 1)
    for own, right in zip(alone, expected, strict=True):
        np.testing.assert_allclose(own, right.reshape(own.shape), rtol=2e-5, atol=2e-5)
    for threads in (2, 3):
        for own, other in zip(alone, results(name, parameters, data, threads), strict=True):
            np.testing.assert_array_equal(own, other)


def values(name: str, shape: tuple[int, ...]) -> Array:
    """Return normal numbers; numbers near one for products; optionally some NaN."""
    random = np.random.default_rng(len(shape) * shape[0])
    data = random.standard_normal(shape, np.float32)
    if "prod" in name:
        data = np.exp(0.001 * data)
    if name.startswith("nan"):
        data.flat[::7] = np.nan
    return data


@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMULAS)
def test_reductions_by_chunks(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    data = values(name, shape)
    expected = FORMULAS[name](data.astype(np.float64), axis=axes)
    check(name, {"axis": axes}, data, [np.asarray(expected)])


@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "nansum", "norm"])
def test_equal_numbers_lose_no_digits(
    name: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    """Roundings of a running float32 sum of equal numbers do not cancel out: they are 1e-4 of it.

    Each of at most three stages rounds once.
    """
    data = np.full(shape, 0.1, np.float32)
    expected = np.asarray(FORMULAS[name](data.astype(np.float64), axis=axes))
    (found,) = results(name, {"axis": axes}, data, 2)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=3 * 2**-24)


@pytest.mark.parametrize("axis", [0, 1])
def test_squares_do_not_overflow_along_any_axis(axis: int) -> None:
    data = np.array([[3e19, 4e19, 1e-30], [4e19, 3e19, 1e-30]], np.float32)
    (found,) = results("norm", {"axis": axis}, data, 1)
    expected = np.sqrt(np.square(data.astype(np.float64)).sum(axis))
    np.testing.assert_allclose(found, expected, rtol=2**-23)


@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_moments_by_chunks(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    data = values("moments", shape) + 3
    wide = data.astype(np.float64)
    check("moments", {"axes": axes}, data, [wide.mean(axis=axes), wide.var(axis=axes)])


@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_running_sums_by_chunks(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    data = values("cumsum", shape)
    expected = np.cumsum(data.astype(np.float64), axis=axes[0])
    check("cumsum", {"axis": axes[0]}, data, [expected])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_extremes_of_many(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    data = values(name, shape)
    data.flat[:: max(1, data.size // 5)] = np.nan
    found = getattr(np, name)(data, axis=axes[0])
    check(name, {"axis": axes[0]}, data, [np.asarray(found, np.float64)])


@pytest.mark.parametrize("name", ["max", "min", "sum"])
def test_nan_survives_chunks(name: str) -> None:
    data = values(name, (100_003,))
    data[77_777] = np.nan
    assert np.isnan(results(name, {}, data, 2)[0]).all()
