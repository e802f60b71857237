"""Selection of pooling kernels, and the loops of max-pooling."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from operator_harness import (
    Array,
    BackwardData,
    ForwardRun,
    all_implementations,
    backward,
    forward,
    implementations,
    spec_of,
)
from operator_row import Row

from mxrun.device.cpu.onednn import library
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.ops.pooling import maximum as pooling_maximum
from mxrun.ops.pooling import maximum_gradient as pooling_maximum_gradient

WINDOW = {"kernel": (3, 3), "stride": (2, 2)}
CONVENTION = {"pooling_convention": "full"}
FULL = {**WINDOW, **CONVENTION}
PADDED = {**WINDOW, "pad": (1, 1)}
GLOBAL_AVERAGE = {"global_pool": True, "pool_type": "avg"}
LOW = np.dtype(ml_dtypes.bfloat16)


def server(parameters: dict[str, Any], shape: tuple[int, ...]) -> str:
    """Return the first implementation that supports the case."""
    row = Row("Pooling", parameters, shape)
    numpy, *fast = all_implementations(row.create())
    for implementation in (*fast, numpy):
        outputs = row.blank_outputs("float32")
        if forward(implementation, row.create(), row.inputs("float32"), outputs) is not None:
            return implementation.name
    raise AssertionError("nobody pools")


@pytest.mark.skipif(library.load() is None, reason=library.reason())
@pytest.mark.parametrize(
    "parameters",
    [
        {**PADDED, "pool_type": "avg"},
        {**PADDED, "pool_type": "avg", "count_include_pad": False},
        {**FULL, "pool_type": "avg"},
        {**FULL, "pool_type": "avg", "pad": (1, 1), "count_include_pad": False},
        GLOBAL_AVERAGE,
    ],
)
def test_onednn_pools_averages(parameters: dict[str, Any]) -> None:
    assert server(parameters, (2, 3, 8, 6)) == "onednn"


@pytest.mark.parametrize(("pool_type", "name"), [("max", "jit"), ("sum", "jit")])
def test_a_loop_pools_under_the_convention_same(pool_type: str, name: str) -> None:
    same = {"kernel": (3,), "stride": (2,), "pooling_convention": "same"}
    assert server({**same, "pool_type": pool_type}, (2, 3, 8)) == name


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (PADDED, "jit"),
        ({**FULL, "pad": (1, 1)}, "jit"),
        ({**PADDED, "pool_type": "sum"}, "jit"),
        # Padding counts in the average, except beyond the requested amount.
        ({**FULL, "pool_type": "avg", "pad": (1, 1)}, "jit"),
        ({**PADDED, "pool_type": "lp", "p_value": 1}, "numpy"),
        # The last window starts behind the data.
        ({"kernel": (1, 1), "stride": (4, 4), "pooling_convention": "full"}, "jit"),
    ],
)
def test_others_pool_the_rest(parameters: dict[str, Any], name: str) -> None:
    assert server(parameters, (2, 3, 6, 6)) == name


# (parameters, shape, forward's loop, backward's loop)
GEOMETRIES = [
    ({"kernel": (2, 2), "stride": (2, 2)}, (3, 20, 6, 8), "of_4", "of_4_gradient"),
    ({"kernel": (2, 2), "stride": (2, 2)}, (3, 20, 7, 9), "of_4", "gradient"),
    ({"kernel": (2, 2)}, (2, 33, 5, 4), "of_4", "gradient"),
    ({"kernel": (2, 2), "stride": (3, 3)}, (2, 5, 8, 8), "of_4", "gradient"),
    ({"kernel": (2, 2), "stride": (2, 2), "pad": (1, 1)}, (2, 5, 6, 6), "", "gradient"),
    (PADDED, (5, 17, 9, 8), "of_9", "of_9_gradient"),
    (PADDED, (1, 17, 9, 8), "of_9", "of_9_gradient"),
    ({"kernel": (3, 3), "pad": (2, 2)}, (2, 3, 2, 1), "of_9", "of_9_gradient"),
    ({**FULL, "stride": (4, 4)}, (2, 3, 6, 6), "of_9", "of_9_gradient"),
    ({"kernel": (3, 3), "stride": (5, 5), **CONVENTION}, (2, 3, 4, 4), "", "of_9_gradient"),
    ({"kernel": (3,), "stride": (2,), "pad": (1,)}, (2, 4, 9), "", "gradient"),
    ({"kernel": (2, 3, 2), "stride": (1, 2, 2)}, (2, 16, 4, 5, 6), "", "gradient"),
    ({"kernel": (17, 16), "stride": (3, 2)}, (2, 3, 20, 19), "", "gradient"),
]


@pytest.mark.parametrize(("parameters", "shape", "forward_loop", "backward_loop"), GEOMETRIES)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_loop_finds_the_first_maximum(
    parameters: dict[str, Any],
    shape: tuple[int, ...],
    forward_loop: str,
    backward_loop: str,
    threads: int,
) -> None:
    """Uses data with many ties, NaN and infinities, and gradients with exact sums."""
    row = Row("Pooling", parameters, shape)
    prop, data, results = row.create(), special_numbers(shape), []
    for implementation in (NUMPY, implementations("Pooling")["jit"]):
        done = forward(implementation, prop, [data], row.blank_outputs("float32"), threads=threads)
        assert done is not None
        out_grad = np.arange(done.outputs[0].size, dtype=np.float32)
        gradients = backward(
            implementation,
            prop,
            BackwardData([out_grad.reshape(done.outputs[0].shape)], [data], done.outputs),
            [np.full(shape, np.nan, np.float32)],
            done,
            threads=threads,
        )
        results.append([*done.outputs, *gradients])
    for expected, got in zip(*results, strict=True):
        np.testing.assert_array_equal(got, expected)
    window, specs = prop.parameters.window(shape[2:]), [*map(spec_of, (data, results[0][0]))]
    code = pooling_maximum.maximum_code(*specs, window)
    assert code is getattr(pooling_maximum, named(forward_loop))
    code = pooling_maximum_gradient.maximum_gradient_code(*specs, window, adds=False)
    assert code is getattr(pooling_maximum_gradient, named(backward_loop))


def named(loop: str) -> str:
    return "_".join(filter(None, ("maximum", loop, "loop")))


def test_a_winner_takes_a_byte_where_its_window_is_small() -> None:
    for kernel, size in (((16, 16), 1), ((16, 17), 4)):
        row = Row("Pooling", {"kernel": kernel}, (1, 3, 20, 20))
        done = forward(
            implementations("Pooling")["jit"],
            row.create(),
            row.inputs("float32"),
            row.blank_outputs("float32"),
        )
        assert done is not None
        (winners,) = done.kernel.extra_outputs
        assert winners.nbytes == size * done.outputs[0].size


def special_numbers(shape: tuple[int, ...]) -> Array:
    """Return numbers exact in bfloat16, with many ties, NaN and infinities."""
    random = np.random.default_rng(3)
    data = random.integers(-2, 3, shape).astype(np.float32)
    data[random.random(shape) < 0.05] = np.nan
    data[random.random(shape) < 0.05] = np.inf
    data[random.random(shape) < 0.4] = -np.inf
    return data


def pooled(
    name: str, row: Row, data: Array, out_grad: Array, threads: int = 1
) -> tuple[ForwardRun, Array] | None:
    """Return an implementation's output and gradient for data, in their type."""
    prop, blank = row.create(), np.empty(out_grad.shape, data.dtype)
    implementation = implementations("Pooling")[name]
    done = forward(implementation, prop, [data], [blank], threads=threads)
    if done is None:
        return None
    known = BackwardData([out_grad.astype(data.dtype)], [data], done.outputs)
    (gradient,) = backward(
        implementation, prop, known, [np.empty_like(data)], done, threads=threads
    )
    return done, gradient


@pytest.mark.parametrize(("parameters", "shape"), [case[:2] for case in GEOMETRIES])
@pytest.mark.parametrize("threads", [1, 2])
def test_maxima_of_bfloat16_are_those_of_float32_with_gradients_rounded_once(
    parameters: dict[str, Any], shape: tuple[int, ...], threads: int
) -> None:
    row, data = Row("Pooling", parameters, shape), special_numbers(shape)
    size = row.blank_outputs("float32")[0].shape
    out_grad = np.random.default_rng(5).standard_normal(size).astype(LOW).astype(np.float32)
    found, wanted = (
        pooled("jit", row, data.astype(dtype), out_grad, threads) for dtype in (LOW, np.float32)
    )
    assert found is not None
    assert wanted is not None
    (low, low_gradient), (wide, wide_gradient) = found, wanted
    same_numbers(low.outputs[0], wide.outputs[0].astype(LOW))
    same_numbers(low_gradient, wide_gradient.astype(LOW))
    assert low.extra[0].bytes.tobytes() == wide.extra[0].bytes.tobytes()


def same_numbers(found: Array, wanted: Array) -> None:
    assert found.dtype == wanted.dtype == LOW
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.skipif(library.load() is None, reason=library.reason())
@pytest.mark.parametrize(
    ("parameters", "gradients"),
    [
        (GLOBAL_AVERAGE, LOW),
        ({"kernel": (2, 2), "stride": (2, 2), "pool_type": "avg"}, LOW),
        # Windows overlap: gradients are sums, which oneDNN would round more than once.
        ({**PADDED, "pool_type": "avg"}, np.float32),
    ],
)
def test_averages_of_bfloat16_are_rounded_once(parameters: dict[str, Any], gradients: Any) -> None:
    row, random = Row("Pooling", parameters, (2, 5, 8, 6)), np.random.default_rng(3)
    size = row.blank_outputs("float32")[0].shape
    data, out_grad = (
        random.standard_normal(shape).astype(LOW).astype(np.float32) for shape in (row.shape, size)
    )
    found, wanted = (pooled("onednn", row, data.astype(t), out_grad) for t in (LOW, np.float32))
    if found is None:
        pytest.skip("oneDNN has no bfloat16 pooling for this processor")
    assert wanted is not None
    (low, low_gradient), (wide, wide_gradient) = found, wanted
    assert (low.outputs[0].dtype, low_gradient.dtype) == (LOW, gradients)
    for got, exact in ((low.outputs[0], wide.outputs[0]), (low_gradient, wide_gradient)):
        np.testing.assert_allclose(got.astype(np.float32), exact, rtol=2**-8)


@pytest.mark.parametrize(
    "parameters",
    [
        {**PADDED, "pool_type": "sum"},
        {**PADDED, "pool_type": "lp", "p_value": 2},
        {**FULL, "pool_type": "avg", "pad": (1, 1)},
    ],
)
def test_other_pooling_of_bfloat16_is_declined(parameters: dict[str, Any]) -> None:
    row = Row("Pooling", parameters, (2, 3, 6, 6))
    (output,) = row.blank_outputs("float32")
    for implementation in implementations("Pooling").values():
        data = np.ones(row.shape, LOW)
        assert forward(implementation, row.create(), [data], [output.astype(LOW)]) is None


def test_one_type_beside_another_is_declined() -> None:
    for kind, (name, implementation) in itertools.product(
        ("max", "avg"), implementations("Pooling").items()
    ):
        row = Row("Pooling", {**WINDOW, "pool_type": kind}, (2, 3, 6, 6))
        (output,) = row.blank_outputs("float32")
        data = np.ones(row.shape, LOW)
        assert forward(implementation, row.create(), [data], [output]) is None, name
