"""MXNet and PyTorch agree on every operator, so that they can serve as an oracle.

Computed in float64, because MXNet's float32 kernels come from another library, with approximations
and (for average pooling with the full convention) a wrong gradient.
"""

from itertools import product

import numpy as np
import pytest
from oracles.peer import MXNet, PyTorch

from mxrun.base.errors import UserError

_RANDOM = np.random.default_rng(7)
_IMAGE = _RANDOM.standard_normal((2, 3, 7, 9))


def _normal(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape)


def _assert_agree(mxnet: MXNet, pytorch: PyTorch, operator, parameters, inputs) -> None:
    """Outputs and every gradient agree, for a random gradient of the output."""
    (output,) = mxnet.run_operator(operator, parameters, inputs, gradients=False).outputs
    heads = [np.random.default_rng(1).standard_normal(output.shape)]
    expected = mxnet.run_operator(operator, parameters, inputs, heads)
    got = pytorch.run_operator(operator, parameters, inputs, heads)
    # SoftmaxOutput and pooling have float32 factors inside MXNet, hence not 1e-12.
    np.testing.assert_allclose(got.outputs[0], expected.outputs[0], rtol=1e-6, atol=1e-7)
    assert list(got.gradients) == list(expected.gradients) == list(inputs)
    for name, gradient in expected.gradients.items():
        np.testing.assert_allclose(got.gradients[name], gradient, rtol=1e-6, atol=1e-7)


_CONVOLUTIONS = [
    ({"kernel": "(3, 3)", "num_filter": "4"}, (2, 3, 7, 9), (4, 3, 3, 3)),
    ({"kernel": "(3,)", "num_filter": "4", "stride": "(2,)"}, (2, 3, 9), (4, 3, 3)),
    ({"kernel": "(2, 2, 2)", "num_filter": "2", "pad": "(1, 0, 1)"}, (1, 2, 3, 4, 5), (2,) * 5),
    (
        {
            "kernel": "(3, 2)",
            "num_filter": "6",
            "num_group": "3",
            "stride": "(2, 1)",
            "dilate": "(1, 2)",
            "pad": "(2, 1)",
        },
        (2, 3, 7, 9),
        (6, 1, 3, 2),
    ),
]


@pytest.mark.parametrize(("parameters", "data", "weight"), _CONVOLUTIONS)
@pytest.mark.parametrize("no_bias", [False, True])
def test_convolution(mxnet, pytorch, parameters, data, weight, no_bias):
    inputs = {"data": _normal(*data), "weight": _normal(*weight)}
    if not no_bias:
        inputs["bias"] = _normal(weight[0])
    _assert_agree(mxnet, pytorch, "Convolution", {**parameters, "no_bias": str(no_bias)}, inputs)


@pytest.mark.parametrize(("flatten", "width"), [("True", 21), ("False", 7)])
@pytest.mark.parametrize("no_bias", [False, True])
def test_fully_connected(mxnet, pytorch, flatten, width, no_bias):
    inputs = {"data": _normal(2, 3, 7), "weight": _normal(4, width)}
    if not no_bias:
        inputs["bias"] = _normal(4)
    parameters = {"num_hidden": "4", "flatten": flatten, "no_bias": str(no_bias)}
    _assert_agree(mxnet, pytorch, "FullyConnected", parameters, inputs)


@pytest.mark.parametrize("act_type", ["relu", "sigmoid", "tanh", "softrelu", "softsign"])
def test_activation(mxnet, pytorch, act_type):
    data = np.concatenate([20 * _normal(50), [0.0, -0.0]])
    _assert_agree(mxnet, pytorch, "Activation", {"act_type": act_type}, {"data": data})


_WINDOWS = [
    ("(3, 3)", "(2, 2)", "(1, 1)"),
    ("(2, 3)", "(2, 1)", "(0, 1)"),
    ("(3, 3)", "(3, 3)", "(1, 1)"),
    ("(2, 2)", "(3, 3)", "(0, 0)"),
]
_KINDS = [
    {"pool_type": "max"},
    {"pool_type": "sum"},
    {"pool_type": "avg"},
    {"pool_type": "avg", "count_include_pad": "False"},
    {"pool_type": "lp", "p_value": "1"},
    {"pool_type": "lp", "p_value": "2"},
]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: "-".join(kind.values()))
@pytest.mark.parametrize("convention", ["valid", "full"])
@pytest.mark.parametrize(("kernel", "stride", "pad"), _WINDOWS)
def test_pooling(mxnet, pytorch, kind, convention, kernel, stride, pad):
    windows = {"kernel": kernel, "stride": stride, "pad": pad, "pooling_convention": convention}
    _assert_agree(mxnet, pytorch, "Pooling", {**kind, **windows}, {"data": _IMAGE})


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("stride", ["(1,)", "(2,)", "(3,)"])
def test_pooling_with_the_same_convention(mxnet, pytorch, kind, stride):
    """MXNet supports one spatial axis, and reads three elements of a pad that must be zero."""
    parameters = {"kernel": "(3,)", "pad": "(0, 0, 0)", "pooling_convention": "same"}
    for size in (8, 9):
        inputs = {"data": _IMAGE[:, :, 0, :size]}
        extra = {"pool_type": kind, "stride": stride}
        _assert_agree(mxnet, pytorch, "Pooling", {**parameters, **extra}, inputs)


@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
def test_pooling_globally_and_over_other_ranks(mxnet, pytorch, kind):
    for parameters, data in [
        ({"global_pool": "True", "kernel": "(2, 2)", "pad": "(1, 1)"}, _IMAGE),
        ({"kernel": "(3,)"}, _IMAGE[..., 0]),
        ({"kernel": "(2, 3, 2)"}, _IMAGE[None]),
    ]:
        _assert_agree(mxnet, pytorch, "Pooling", {**parameters, "pool_type": kind}, {"data": data})


def test_the_first_of_equal_maxima_gets_the_gradient(mxnet, pytorch):
    inputs = {"data": np.ones((1, 1, 4, 4))}
    parameters = {"kernel": "(2, 2)", "stride": "(2, 2)"}
    _assert_agree(mxnet, pytorch, "Pooling", parameters, inputs)
    gradient = pytorch.run_operator("Pooling", parameters, inputs).gradients["data"]
    assert gradient[0, 0].nonzero()[0].tolist() == [0, 0, 2, 2]


def test_flatten_and_elemwise_add(mxnet, pytorch):
    _assert_agree(mxnet, pytorch, "Flatten", {}, {"data": _IMAGE})
    _assert_agree(mxnet, pytorch, "elemwise_add", {}, {"lhs": _IMAGE, "rhs": _normal(2, 3, 7, 9)})


_NORMALIZATIONS = [*product(["null", "batch", "valid"], ["False", "True"], ["0", "0.1"])]


@pytest.mark.parametrize(("normalization", "use_ignore", "smooth_alpha"), _NORMALIZATIONS)
def test_softmax_output(mxnet, pytorch, normalization, use_ignore, smooth_alpha):
    parameters = {
        "grad_scale": "2.5",
        "ignore_label": "1",
        "normalization": normalization,
        "smooth_alpha": smooth_alpha,
        "use_ignore": use_ignore,
    }
    flat, deep = _normal(6, 4), _normal(6, 4, 5)
    labels = np.array([0.0, 1.0, 2.0, 3.0, 1.0, 1.0])
    along_last = _RANDOM.integers(0, 5, (6, 4)).astype(float)
    along_first = _RANDOM.integers(0, 4, (6, 5)).astype(float)
    for extra, data, label in [
        ({}, flat, labels),
        ({}, flat, np.abs(flat)),
        ({"preserve_shape": "True"}, deep, along_last),
        ({"multi_output": "True"}, deep, along_first),
    ]:
        inputs = {"data": data, "label": label}
        _assert_agree(mxnet, pytorch, "SoftmaxOutput", {**parameters, **extra}, inputs)


def test_softmax_output_with_out_grad(mxnet, pytorch):
    """MXNet 1.9.1 multiplies by its own output; its documentation says by the output's gradient."""
    inputs = {"data": _normal(6, 4), "label": np.arange(6.0) % 4}
    heads = [_normal(6, 4)]
    plain = pytorch.run_operator("SoftmaxOutput", {}, inputs)
    promised = pytorch.run_operator("SoftmaxOutput", {"out_grad": "True"}, inputs, heads)
    np.testing.assert_allclose(promised.gradients["data"], plain.gradients["data"] * heads[0])
    defect = mxnet.run_operator("SoftmaxOutput", {"out_grad": "True"}, inputs, heads)
    np.testing.assert_allclose(
        defect.gradients["data"], plain.gradients["data"] * plain.outputs[0], rtol=1e-6
    )


@pytest.mark.parametrize(("clip", "wd"), [*product(["-1", "0", "0.3"], ["0", "0.1"])])
def test_sgd(mxnet, pytorch, clip, wd):
    parameters = {"lr": "0.1", "wd": wd, "clip_gradient": clip, "rescale_grad": "0.5"}
    inputs = {"weight": _normal(5), "grad": _normal(5)}
    states = {"mom": _normal(5)}
    for operator, arrays, extra in [
        ("sgd_update", inputs, {}),
        ("sgd_mom_update", {**inputs, **states}, {"momentum": "0.9", "lazy_update": "False"}),
    ]:
        expected, got = (
            peer.run_operator(operator, {**parameters, **extra}, arrays, gradients=False)
            for peer in (mxnet, pytorch)
        )
        np.testing.assert_allclose(got.outputs[0], expected.outputs[0], rtol=1e-6, atol=1e-6)
        assert got.auxiliary.keys() == expected.auxiliary.keys() == arrays.keys() & {"mom"}
        for name, state in expected.auxiliary.items():
            np.testing.assert_allclose(got.auxiliary[name], state, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        ("Swish", {}),
        ("Pooling", {"kernel": "(2, 2)", "pooling_convention": "same"}),
        ("Pooling", {"kernel": "(9,)"}),
    ],
)
def test_both_reject_and_go_on(mxnet, pytorch, operator, parameters):
    inputs = {"data": np.ones((1, 1, 4))}
    for peer in (mxnet, pytorch):
        with pytest.raises(UserError, match="rejects 'run_symbol'"):
            peer.run_operator(operator, parameters, inputs)
        assert peer.run_operator("Flatten", {}, inputs).outputs[0].shape == (1, 4)
