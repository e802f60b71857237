"""Complete symbols, saved by MXNet itself, in both peers."""

import json
from pathlib import Path

import numpy as np
import pytest
from oracles.peer import MXNet
from oracles.sgd import SGD
from oracles.symbols import operator_symbol

from mxrun.base.errors import UserError

_SYMBOLS = Path(__file__).parent / "symbols"
_CASES = {"mlp": (4, 784), "lenet": (4, 1, 28, 28), "residual": (4, 2, 6, 6)}
_CLASSES = {"mlp": 10, "lenet": 10, "residual": 3}


def _symbol(name: str) -> str:
    return (_SYMBOLS / f"{name}.json").read_text()


def _arrays(mxnet: MXNet, name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters, and three batches stacked along a first axis."""
    random = np.random.default_rng(3)
    shapes = mxnet.infer_shape(_symbol(name), {"data": _CASES[name]})
    parameters = {
        argument: random.standard_normal(shape) / 8
        for argument, shape in shapes.arguments.items()
        if argument not in ("data", "softmax_label")
    }
    batches = {
        "data": random.standard_normal((3, *_CASES[name])),
        "softmax_label": random.integers(0, _CLASSES[name], (3, 4)).astype(float),
    }
    return parameters, batches


@pytest.mark.parametrize("name", _CASES)
def test_outputs_and_gradients_agree(mxnet, pytorch, name):
    parameters, batches = _arrays(mxnet, name)
    inputs = {**parameters, **{key: value[0] for key, value in batches.items()}}
    expected, got = (peer.run_symbol(_symbol(name), inputs) for peer in (mxnet, pytorch))
    np.testing.assert_allclose(got.outputs[0], expected.outputs[0], rtol=1e-6, atol=1e-9)
    assert got.gradients.keys() == expected.gradients.keys() == inputs.keys()
    for key, gradient in expected.gradients.items():
        np.testing.assert_allclose(got.gradients[key], gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", _CASES)
def test_training_agrees(mxnet, pytorch, name):
    """Includes residual.json, with multipliers for a kernel and a name without weight decay."""
    parameters, batches = _arrays(mxnet, name)
    sgd = SGD(lr=0.1, momentum=0.9, wd=0.01, rescale_grad=0.25)
    expected, got = (
        peer.train(_symbol(name), parameters, batches, sgd) for peer in (mxnet, pytorch)
    )
    assert got.keys() == expected.keys() == parameters.keys()
    for key, value in expected.items():
        assert not np.array_equal(value, parameters[key])
        np.testing.assert_allclose(got[key], value, rtol=1e-5, atol=1e-7)


def test_a_saved_symbol_is_saved_alike(mxnet):
    saved = mxnet.save_json(_symbol("lenet"))
    assert json.loads(saved.json) == json.loads(_symbol("lenet"))
    assert saved.arguments[:3] == ("data", "conv1_weight", "conv1_bias")
    assert saved.arguments[-1] == "softmax_label"
    assert saved.outputs == ("softmax_output",)
    assert saved.auxiliary == ()


def test_shapes_are_partial_where_too_little_is_known(mxnet):
    convolution = operator_symbol(
        "Convolution", {"kernel": "(3, 3)", "num_filter": "4"}, ["data", "weight", "bias"]
    )
    shapes = mxnet.infer_shape(convolution, {"data": (None, 3, 8, 8), "bias": None})
    assert shapes.arguments == {"data": (None, 3, 8, 8), "weight": (4, 3, 3, 3), "bias": (4,)}
    assert shapes.outputs == ((None, 4, 6, 6),)
    nothing = mxnet.infer_shape(convolution, {})
    assert nothing.arguments == {"data": None, "weight": None, "bias": None}
    assert nothing.outputs == (None,)


def test_auxiliary_states_are_told_apart(mxnet):
    update = operator_symbol("sgd_mom_update", {"lr": "0.1"}, ["weight", "grad", "mom"])
    shapes = mxnet.infer_shape(update, {"weight": (3,)})
    assert shapes.arguments == {"weight": (3,), "grad": (3,)}
    assert shapes.auxiliary == {"mom": (3,)}


def test_a_missing_array_is_named(mxnet, pytorch):
    for peer in (mxnet, pytorch):
        with pytest.raises(UserError, match="no array for fc1_weight"):
            peer.run_symbol(_symbol("mlp"), {"data": np.ones((1, 784))})


def test_the_peers_describe_themselves(mxnet, pytorch):
    """MXNet spells three updates otherwise: in two phases, with a tensor, for sparse gradients."""
    assert mxnet.version() == "1.9.1"
    ours = pytorch.operators() - mxnet.operators()
    assert ours >= {"adagrad_update", "adamw_update", "lamb_update"}
