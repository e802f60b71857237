"""Attention in blocks: long sequences, threads, padding and scratch space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from executors import cpu
from operator_harness import Array, BackwardData, backward, forward, implementations

from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import AnyProperty, Implementation, create

OPERATOR = "scaled_dot_product_attention"
COMPILED = implementations(OPERATOR)["jit"]

# Heads, heads of keys and values, queries, keys, and size of a head; more keys than the scores in
# memory at a time, more queries than a task has, and sizes that are no multiples of vectors.
LONG = (
    (2, 2, 530, 530, 16),
    (4, 1, 300, 700, 20),
    (2, 1, 65, 577, 7),
    (1, 1, 129, 64, 33),
)


def attention(heads: int, groups: int, **parameters: object) -> AnyProperty:
    return create(OPERATOR, {"num_heads": heads, "num_kv_heads": groups, **parameters})


def tensors(
    prop: AnyProperty, sizes: tuple[int, int, int, int, int], batch: int = 2
) -> tuple[list[Array], list[Array]]:
    """Return arguments, and blank outputs."""
    heads, groups, queries, keys, size = sizes
    random = np.random.default_rng(queries)
    shapes = [(batch, queries, heads * size), *[(batch, keys, groups * size)] * 2]
    given: list[Array] = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    if prop.parameters.use_lengths:
        given.append(random.integers(1, keys, batch).astype(np.int32))
    sums = np.zeros((batch, heads, queries), np.float32)
    return given, [np.zeros(shapes[0], np.float32), sums]


def results(
    body: Implementation,
    prop: AnyProperty,
    given: list[Array],
    outputs: list[Array],
    threads: int,
    is_mask_wanted: bool = True,
) -> list[Array]:
    """Return outputs and gradients."""
    run = forward(body, prop, given, outputs, threads=threads)
    assert run is not None
    random = np.random.default_rng(0)
    grads = [random.standard_normal(each.shape).astype(np.float32) for each in outputs]
    before = [np.zeros_like(each) for each in given]
    data = BackwardData(grads, given, run.outputs)
    requests = [OpReqType.WRITE] * len(given)
    if not is_mask_wanted:
        requests[3] = OpReqType.NULL
    gradients = backward(body, prop, data, before, run, requests, threads)
    return [*run.outputs, *gradients[: 3 + prop.parameters.use_mask]]


@pytest.mark.parametrize("parameters", [{}, {"causal": True}, {"use_lengths": True}], ids=str)
@pytest.mark.parametrize("sizes", LONG, ids=str)
def test_blocks_give_the_numbers_of_one_product(
    sizes: tuple[int, int, int, int, int], parameters: dict[str, Any]
) -> None:
    prop = attention(*sizes[:2], **parameters)
    given, outputs = tensors(prop, sizes)
    expected = results(NUMPY, prop, given, outputs, 1)
    for own, other in zip(results(COMPILED, prop, given, outputs, 2), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("sizes", LONG[:2], ids=str)
def test_the_bits_do_not_depend_on_the_threads(sizes: tuple[int, int, int, int, int]) -> None:
    prop = attention(*sizes[:2], causal=True)
    given, outputs = tensors(prop, sizes)
    alone, both, three = (results(COMPILED, prop, given, outputs, threads) for threads in (1, 2, 3))
    for one, two, other in zip(alone, both, three, strict=True):
        assert one.tobytes() == two.tobytes() == other.tobytes()


# Sequences and heads of a mask: the gradient is summed over those that share it.
SHARED = ((1, 1), (3, 1), (1, 4), (3, 4))


def masked(shared: tuple[int, int]) -> tuple[AnyProperty, list[Array], list[Array]]:
    """Return attention with a mask, its arguments and blank outputs."""
    prop = attention(4, 2, causal=True, use_mask=True)
    given, outputs = tensors(prop, (4, 2, 90, 70, 12), batch=3)
    mask = np.random.default_rng(1).standard_normal((*shared, 90, 70)).astype(np.float32)
    return prop, [*given, mask], outputs


@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_the_masks_gradient_does_not_depend_on_the_threads(shared: tuple[int, int]) -> None:
    prop, given, outputs = masked(shared)
    alone, both, three = (results(COMPILED, prop, given, outputs, threads) for threads in (1, 2, 3))
    assert alone[-1].shape == given[-1].shape
    for one, two, other in zip(alone, both, three, strict=True):
        assert one.tobytes() == two.tobytes() == other.tobytes()


@pytest.mark.parametrize("shared", SHARED, ids=str)
def test_a_mask_without_gradient_leaves_the_bits(shared: tuple[int, int]) -> None:
    prop, given, outputs = masked(shared)
    expected = results(COMPILED, prop, given, outputs, 2)
    found = results(COMPILED, prop, given, outputs, 2, is_mask_wanted=False)
    assert not found[-1].any()
    assert [each.tobytes() for each in found[:-1]] == [each.tobytes() for each in expected[:-1]]


def test_padding_is_never_read() -> None:
    sizes = LONG[1]
    prop = attention(*sizes[:2], use_lengths=True)
    given, outputs = tensors(prop, sizes)
    expected = results(COMPILED, prop, given, outputs, 2)
    for sequence, length in enumerate(given[3]):
        for each in given[1:3]:
            each[sequence, length:] = np.nan
    for own, other in zip(results(COMPILED, prop, given, outputs, 2), expected, strict=True):
        assert own.tobytes() == other.tobytes()


def test_a_query_without_keys_has_the_output_0() -> None:
    prop = attention(2, 2, use_lengths=True)
    given, outputs = tensors(prop, (2, 2, 70, 40, 8))
    given[3][:] = [0, 40]
    output, logsumexp, *gradients = results(COMPILED, prop, given, outputs, 1)
    assert not output[0].any()
    assert np.isneginf(logsumexp[0]).all()
    assert not any(gradient[0].any() for gradient in gradients)
    assert all(gradient[1].any() for gradient in gradients)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scratch_space_does_not_grow_with_the_square_of_the_steps(dtype: str) -> None:
    prop, device = attention(1, 1, causal=True), cpu(1)
    steps, size = 8192, 64
    inputs = (TensorSpec((1, steps, size), dtype),) * 3
    outputs = (inputs[0], TensorSpec((1, 1, steps)))
    request = ForwardRequest(inputs, outputs, (OpReqType.WRITE,) * 2, True, device)
    kernel = COMPILED.prepare_forward(prop, request)
    assert kernel is not None
    assert kernel.workspace_bytes < 4 * steps * (2 * size + 1) + (1 << 20)


def test_scores_that_differ_by_more_than_an_exponent_give_one_key_each() -> None:
    """Rounding of the largest scores is far above 1: none of it may reach an exponential."""
    prop = attention(2, 1)
    given, outputs = tensors(prop, (2, 1, 70, 40, 8))
    for each in given[:2]:
        each *= 1e10
    expected = results(NUMPY, prop, given, outputs, 1)[:2]
    for own, other in zip(results(COMPILED, prop, given, outputs, 2)[:2], expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)


@pytest.mark.parametrize("least", [-3e38, np.finfo(np.float32).min], ids=str)
def test_a_mask_of_the_least_number_still_selects_keys(least: float) -> None:
    """It equals -inf beside other numbers; a row of nothing else gives the mean of the values."""
    prop = attention(2, 1, use_mask=True)
    given, outputs = tensors(prop, (2, 1, 70, 40, 8))
    mask = np.zeros((1, 1, 70, 40), np.float32)
    mask[..., 10:] = least
    mask[..., 3, :] = least
    given.append(mask)
    expected = results(NUMPY, prop, given, outputs, 1)
    found = results(COMPILED, prop, given, outputs, 2)
    np.testing.assert_allclose(found[0][:, 3, :8], given[2].mean(axis=1), rtol=1e-4, atol=1e-6)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-5)
