"""Kernels of one position a run, or few: products of few rows, and attention over a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu
from launches import aligned, run

from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import AnyProperty, create, implementations

Array = npt.NDArray[Any]


def prepared(
    prop: AnyProperty,
    implementation: str,
    inputs: list[Array],
    outputs: list[Array],
    threads: int = 1,
    **changes: bool,
) -> Kernel | None:
    """Return a kernel for arrays, in inference."""
    request = ForwardRequest(
        tuple(TensorSpec(array.shape, str(array.dtype)) for array in inputs),
        tuple(TensorSpec(array.shape, str(array.dtype)) for array in outputs),
        (OpReqType.WRITE,) * len(outputs),
        changes.pop("is_train", False),
        cpu(threads),
        **changes,
    )
    known = {**implementations(prop.type_string), NUMPY.name: NUMPY}
    return known[implementation].prepare_forward(prop, request)


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "hidden", "threads"),
    [(1, 7, 1, 1), (2, 64, 65, 1), (1, 100, 33, 1), (2, 513, 1100, 2)],
)
def test_products_of_few_rows(
    rows: int, columns: int, hidden: int, threads: int, has_bias: bool
) -> None:
    data, weight = random(rows, 1, columns), random(hidden, columns)
    inputs = [data, weight, *([random(hidden)] if has_bias else [])]
    prop = create(
        "FullyConnected", {"num_hidden": hidden, "flatten": False, "no_bias": not has_bias}
    )
    output = np.zeros((rows, 1, hidden), np.float32)
    kernel = prepared(prop, "few_rows", inputs, [output], threads)
    assert kernel is not None
    # The weight is read where it is.
    assert kernel.inputs[1] == TensorSpec(weight.shape)
    assert kernel.workspace_bytes == 0
    run(kernel, inputs, [output], threads=threads)
    expected = data.astype(np.float64) @ weight.T + (inputs[2] if has_bias else 0)
    np.testing.assert_allclose(output, expected, atol=1e-4)
    # A row has the same bits alone.
    alone = np.zeros((1, 1, hidden), np.float32)
    single = prepared(prop, "few_rows", [data[-1:], *inputs[1:]], [alone])
    assert single is not None
    run(single, [data[-1:], *inputs[1:]], [alone])
    np.testing.assert_array_equal(alone[0], output[-1])


def test_other_products_are_left_to_matrix_products() -> None:
    prop = create("FullyConnected", {"num_hidden": 6, "no_bias": True})
    for rows, changes in ((5, {}), (2, {"is_train": True}), (2, {"differentiated": True})):
        arrays = [random(rows, 8), random(6, 8)]
        assert prepared(prop, "few_rows", arrays, [random(rows, 6)], **changes) is None


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    ("heads", "groups", "size", "length", "threads"),
    [(1, 1, 1, 5, 1), (4, 2, 33, 40, 1), (3, 3, 16, 16, 1), (6, 2, 64, 1500, 2)],
)
@pytest.mark.parametrize("count", [1, 4])
def test_attention_over_a_cache(
    heads: int, groups: int, size: int, length: int, threads: int, is_packed: bool, count: int
) -> None:
    batch = 2
    parameters = {"num_heads": heads, "num_kv_heads": groups, "scale": 0.3, "causal": True}
    cached = {"use_position": True, "max_length": length, "packed": is_packed}
    prop = create("scaled_dot_product_attention", {**parameters, **cached})
    widths = [heads * size, groups * size, groups * size]
    keys, values = (random(batch, length, groups * size) for _ in range(2))
    values = values[:, ::-1].copy()
    shapes = [(batch, count, width) for width in ([sum(widths)] if is_packed else widths)]
    inferred = prop.infer_shape([*shapes, (1,)], [None] * 3)
    key_cache, value_cache = (np.zeros(shape, np.float32) for shape in inferred.auxiliary)
    assert value_cache.shape == (batch, groups, length, size)
    for present in sorted({0, 1, min(13, length - count), length // 3, length - count}):
        # What earlier runs have stored.
        key_cache[...], value_cache[...] = filled(keys, values, present, key_cache.shape)
        query, own = random(batch, count, heads * size) + present, slice(present, present + count)
        given = [query, keys[:, own], values[:, own]]
        arguments = [np.concatenate(given, axis=2)] if is_packed else [g.copy() for g in given]
        position = np.array([present], np.int32)
        output = np.zeros((batch, count, heads * size), np.float32)
        tensors = [*arguments, position, key_cache, value_cache]
        kernel = prepared(prop, "jit", tensors, [output, key_cache, value_cache], threads)
        assert kernel is not None
        workspace = aligned(kernel.workspace_bytes)
        run(kernel, tensors, [output, key_cache, value_cache], workspace, threads)
        for row in range(count):
            now = query[:, row : row + 1]
            expected = attention(now, keys, values, present + row, heads, groups)
            np.testing.assert_allclose(output[:, row : row + 1], expected, atol=2e-5)
        after = filled(keys, values, present + count, key_cache.shape)
        np.testing.assert_array_equal(key_cache, after[0])
        np.testing.assert_array_equal(value_cache, after[1])


ATTENTION = {"num_heads": 1, "causal": True, "packed": True}


@pytest.mark.parametrize("implementation", ["jit", "numpy"])
@pytest.mark.parametrize(
    ("operator", "parameters", "further"),
    [
        ("position_embedding", {}, [(5, 6)]),
        ("rotary_embedding", {"num_heads": 1}, []),
        ("scaled_dot_product_attention", ATTENTION, []),
    ],
)
def test_a_position_is_clipped_to_those_that_are_stored(
    operator: str,
    parameters: dict[str, object],
    further: list[tuple[int, ...]],
    implementation: str,
) -> None:
    prop = create(operator, {**parameters, "use_position": True, "max_length": 5})
    inputs = [random(2, 3, 6), *(random(*shape) for shape in further)]
    inferred = prop.infer_shape(
        [*(x.shape for x in inputs), (1,)], [None] * len(prop.list_outputs())
    )

    def outputs(position: int) -> list[Array]:
        states = [np.ones(shape, np.float32) for shape in inferred.auxiliary]
        tensors = [*inputs, np.array([position], np.int32), *states]
        results = [np.zeros(inferred.outputs[0], np.float32), *states]
        kernel = prepared(prop, implementation, tensors, results)
        assert kernel is not None
        run(kernel, tensors, results, aligned(kernel.workspace_bytes))
        return results

    for position, stored in ((-3, 0), (99, 2)):
        for found, expected in zip(outputs(position), outputs(stored), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(outputs(0)[0], outputs(2)[0])


def filled(keys: Array, values: Array, count: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return caches with the keys and values of the first positions."""
    batch, groups, blocks, size, lanes = shape
    rows = np.zeros((batch, blocks * lanes, groups, size), np.float32)
    rows[:, :count] = keys[:, :count].reshape(batch, count, groups, size)
    key_cache = rows.reshape(batch, blocks, lanes, groups, size).transpose(0, 3, 1, 4, 2)
    value_cache = np.zeros((batch, groups, values.shape[1], size), np.float32)
    split = values[:, :count].reshape(batch, count, groups, size)
    value_cache[:, :, :count] = split.transpose(0, 2, 1, 3)
    return key_cache, value_cache


def attention(
    query: Array, keys: Array, values: Array, present: int, heads: int, groups: int
) -> Array:
    """Return attention at one position in float64."""
    batch, size = len(query), query.shape[2] // heads
    result = np.zeros((batch, 1, heads * size))
    for n in range(batch):
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            group = head // (heads // groups)
            shared = slice(group * size, (group + 1) * size)
            scores = 0.3 * keys[n, : present + 1, shared].astype(np.float64) @ query[n, 0, own]
            weights = np.exp(scores - scores.max())
            mixed = weights @ values[n, : present + 1, shared] / weights.sum()
            result[n, 0, own] = mixed
    return result
