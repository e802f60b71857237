"""Arrays without elements, and contexts that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mxrun
from mxrun import autograd, nd


def test_layers_take_a_batch_without_samples() -> None:
    images, weight = nd.zeros((0, 3, 8, 8)), nd.ones((2, 3, 3, 3))
    maps = nd.Convolution(images, weight, kernel=(3, 3), num_filter=2, no_bias=True)
    pooled = nd.Pooling(maps, kernel=(2, 2), stride=(2, 2))
    assert pooled.asnumpy().shape == (0, 2, 3, 3)


@pytest.mark.parametrize("parameters", [{"multi_output": True}, {"preserve_shape": True}, {}])
def test_softmax_output_of_nothing(parameters: dict[str, bool]) -> None:
    label = nd.zeros((0,)) if not parameters else nd.zeros((0, 4))
    data = nd.zeros((0, 3, 4)) if "multi_output" in parameters else nd.zeros((0, 4, 3))
    data = data if parameters else nd.zeros((0, 3))
    assert nd.SoftmaxOutput(data, label, **parameters).asnumpy().shape == data.shape


def gradients_of(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    for each in inputs:
        each.attach_grad()
    with autograd.record():
        output = function(*inputs)
    output.backward()
    return [each.grad.asnumpy() for each in inputs]


@pytest.mark.parametrize("parameters", [{"multi_output": True}, {"preserve_shape": True}, {}])
@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_softmax_output_of_nothing_has_an_empty_gradient(
    parameters: dict[str, bool], normalization: str
) -> None:
    label = nd.zeros((0, 4)) if parameters else nd.zeros((0,))
    data = nd.zeros((0, 3, 4) if "multi_output" in parameters else (0, 4, 3))
    data = data if parameters else nd.zeros((0, 3))
    (gradient,) = gradients_of(
        lambda x: nd.SoftmaxOutput(x, label, normalization=normalization, **parameters), data
    )
    assert gradient.shape == data.shape


@pytest.mark.parametrize("operator", ["Convolution", "Deconvolution"])
def test_window_products_of_nothing_have_zero_gradients(operator: str) -> None:
    sizes = {"kernel": (3, 3), "num_filter": 4, "num_group": 2, "no_bias": False}
    weight = nd.ones((4, 2, 3, 3))
    data, weight_grad, bias = gradients_of(
        lambda x, w, b: getattr(nd, operator)(x, w, b, **sizes),
        nd.zeros((0, 4, 5, 5)),
        weight,
        nd.ones((4,)),
    )
    assert data.shape == (0, 4, 5, 5)
    assert weight_grad.tolist() == np.zeros(weight.shape).tolist()
    assert bias.tolist() == [0] * 4


def test_a_network_of_nothing_has_zero_gradients() -> None:
    def loss(weight: Any) -> Any:
        maps = nd.Convolution(
            nd.zeros((0, 3, 8, 8)), weight, kernel=(3, 3), num_filter=2, no_bias=True
        )
        pooled = nd.Pooling(nd.relu(maps), kernel=(2, 2), stride=(2, 2))
        return nd.SoftmaxOutput(nd.flatten(pooled), nd.zeros((0,)))

    (gradient,) = gradients_of(loss, nd.ones((2, 3, 3, 3)))
    assert gradient.tolist() == np.zeros((2, 3, 3, 3)).tolist()


@pytest.mark.parametrize("name", ["Linear", "Logistic", "MAE"])
def test_regressions_of_nothing_have_empty_gradients(name: str) -> None:
    operator = getattr(nd, f"{name}RegressionOutput")
    (gradient,) = gradients_of(lambda x: operator(x, nd.zeros((0, 2))), nd.zeros((0, 2)))
    assert gradient.shape == (0, 2)


def test_batch_normalisation_of_nothing_keeps_its_statistics() -> None:
    mean, var = nd.array([1, 2]), nd.array([3, 4])
    data, gamma, beta = gradients_of(
        lambda x, g, b: nd.BatchNorm(x, g, b, mean, var, fix_gamma=False),
        nd.zeros((0, 2, 3)),
        nd.ones((2,)),
        nd.zeros((2,)),
    )
    assert (data.shape, gamma.tolist(), beta.tolist()) == ((0, 2, 3), [0, 0], [0, 0])
    assert (mean.asnumpy().tolist(), var.asnumpy().tolist()) == ([1, 2], [3, 4])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_mean_of_nothing_is_nan(dtype: str) -> None:
    """Without a warning, which pytest would turn into an exception."""
    (gradient,) = gradients_of(lambda x: nd.mean(x, axis=0), nd.zeros((0, 2), dtype=dtype))
    assert gradient.shape == (0, 2)
    empty = nd.zeros((0, 2), dtype=dtype)
    assert np.isnan(nd.mean(empty, axis=0).asnumpy().astype("float32")).all()
    mean, var = nd.moments(empty, axes=0)
    assert np.isnan([mean.asnumpy().astype("float32"), var.asnumpy().astype("float32")]).all()


def test_the_integer_mean_of_nothing_is_zero() -> None:
    assert nd.mean(nd.zeros((0, 2), dtype="int32"), axis=0).asnumpy().tolist() == [0, 0]


def test_contexts_are_checked() -> None:
    with pytest.raises(mxrun.UserError, match="a number from 0"):
        mxrun.cpu(-1)
    assert mxrun.cpu(np.int64(1)) == mxrun.cpu(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a context"):
        nd.zeros((2,), ctx="cpu")  # type: ignore[arg-type]
