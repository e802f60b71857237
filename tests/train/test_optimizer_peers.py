"""Optimizers over several steps, compared with MXNet's and PyTorch's optimizer classes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import all_implementations, forward
from oracles.peer import MXNet, PyTorch
from peer_scripts import run_in

from mxrun.graph.update_rule import Multipliers, update_rule
from mxrun.operator.optimizer import OPTIMIZERS
from mxrun.operator.register import Implementation, create

Array = npt.NDArray[Any]
STEPS = 5

MXNET = """
import mxnet as mx

def adamw(rate, wd, b1, b2, epsilon, rescale, weight, gradients):
    mean, var = mx.nd.zeros_like(weight), mx.nd.zeros_like(weight)
    for t, gradient in enumerate(gradients, 1):
        mx.nd.contrib.adamw_update(
            weight, gradient, mean, var, rescale, lr=(1 - b2**t) ** 0.5 / (1 - b1**t), eta=rate,
            wd=wd, beta1=b1, beta2=b2, epsilon=epsilon, out=weight)
        yield weight

def own(name, keywords, weight, gradients):
    optimizer = mx.optimizer.create(name, **keywords)
    state = optimizer.create_state(0, weight)
    for gradient in gradients:
        optimizer.update(0, weight, gradient, state)
        yield weight

def answer(request):
    weight = mx.nd.array(request["weight"])
    gradients = [mx.nd.array(gradient) for gradient in request["gradients"]]
    name, keywords = request["name"], request["keywords"]
    if name == "clip_global_norm":
        mx.gluon.utils.clip_global_norm(gradients, *keywords)
        return [gradient.asnumpy().tolist() for gradient in gradients]
    run = adamw(*keywords, weight, gradients) if name == "adamw" else own(
        name, keywords, weight, gradients)
    return [weight.asnumpy().tolist() for weight in run]
"""

TORCH = """
import torch

def answer(request):
    weight = torch.tensor(request["weight"])
    optimizer = getattr(torch.optim, request["name"])([weight], **request["keywords"])
    weights = []
    for gradient in request["gradients"]:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        weights.append(weight.tolist())
    return weights
"""

AGAINST_MXNET: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"lr": 0.1, "wd": 0.1}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "wd": 0.1, "clip_gradient": 0.5}),
    ("nag", {"lr": 0.1, "wd": 0.1}),
    # Without weight decay: MXNet's operator, run in place, applies the decay to the new weight.
    ("nag", {"lr": 0.1, "momentum": 0.9, "clip_gradient": 0.5}),
    ("signum", {}),
    ("signum", {"lr": 0.1, "momentum": 0.5, "wd": 0.1, "wd_lh": 0.2, "clip_gradient": 0.5}),
    ("signum", {"momentum": 0.0, "wd": 0.1}),
    ("adam", {}),
    ("adam", {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.1, "wd": 0.1, "clip_gradient": 0.5}),
    ("lamb", {}),
    ("lamb", {"lr": 0.1, "wd": 0.1, "lower_bound": 5.0, "clip_gradient": 0.5}),
    ("lamb", {"lr": 0.1, "upper_bound": 1.0, "bias_correction": False}),
    ("adagrad", {}),
    ("adagrad", {"lr": 0.1, "epsilon": 0.1, "wd": 0.1, "clip_gradient": 0.5}),
    ("rmsprop", {}),
    ("rmsprop", {"lr": 0.1, "gamma1": 0.5, "wd": 0.1, "clip_weights": 1.0}),
    ("rmsprop", {"centered": True, "gamma2": 0.5, "wd": 0.1, "clip_gradient": 0.5}),
    ("ftrl", {}),
    ("ftrl", {"lr": 0.5, "lamda1": 1.0, "beta": 0.5, "wd": 0.1, "clip_gradient": 0.5}),
]
ADAMW = {"lr": 0.1, "wd": 0.3, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}
NORMS = (0.5, 100.0)
MXNETS_NAMES = {"lr": "learning_rate"}

# PyTorch's epsilons are at other places in the formulas, so they must be small.
AGAINST_TORCH: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("sgd", {"lr": 0.1, "wd": 0.1}, "SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("sgd", {"lr": 0.1, "momentum": 0.9}, "SGD", {"lr": 0.1, "momentum": 0.9}),
    (
        "nag",
        {"lr": 0.1, "momentum": 0.9, "wd": 0.1},
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    ),
    ("adam", {"wd": 0.1}, "Adam", {"weight_decay": 0.1}),
    ("adamw", {"lr": 0.1, "wd": 0.3}, "AdamW", {"lr": 0.1, "weight_decay": 0.3}),
    ("adagrad", {}, "Adagrad", {}),
    (
        "rmsprop",
        {"lr": 0.01, "gamma1": 0.9, "epsilon": 1e-16, "wd": 0.1},
        "RMSprop",
        {"lr": 0.01, "alpha": 0.9, "weight_decay": 0.1},
    ),
    (
        "rmsprop",
        {"lr": 0.01, "gamma2": 0.5, "epsilon": 1e-16, "centered": True},
        "RMSprop",
        {"lr": 0.01, "alpha": 0.9, "momentum": 0.5, "centered": True},
    ),
]


def start() -> tuple[Array, Array]:
    """A weight, and a gradient for every step."""
    random = np.random.default_rng(5)
    weight = random.standard_normal((4, 3)).astype(np.float32)
    return weight, random.standard_normal((STEPS, 4, 3)).astype(np.float32)


def ours(name: str, parameters: Mapping[str, Any], implementation: Implementation) -> list[Array]:
    """Return mxrun's weight after every step; the gradient is the sum of two samples'."""
    optimizer = OPTIMIZERS.get(name).model_validate(parameters)
    rule = update_rule(optimizer, "fc1_weight", Multipliers())
    prop = create(rule.operator, rule.parameters)
    weight, gradients = start()
    kept = [weight, *(np.zeros_like(weight) for _ in prop.list_outputs()[1:])]
    weights = []
    for step, gradient in enumerate(gradients, 1):
        schedule = np.array([optimizer.lr, *optimizer.corrections(step)], np.float32)
        blank = [np.full_like(weight, np.nan) for _ in kept]
        inputs = [kept[0], gradient, *kept[1:], np.float32([0.5]), schedule]
        run = forward(implementation, prop, inputs, blank)
        assert run is not None
        kept = run.outputs
        weights.append(kept[0])
    return weights


def compare(name: str, parameters: Mapping[str, Any], theirs: list[Any]) -> None:
    optimizer = OPTIMIZERS.get(name).model_validate(parameters)
    rule = update_rule(optimizer, "fc1_weight", Multipliers())
    for implementation in all_implementations(create(rule.operator, rule.parameters)):
        for got, want in zip(ours(name, parameters, implementation), theirs, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def request(name: str, keywords: Any, rescale: float = 1.0) -> dict[str, Any]:
    weight, gradients = start()
    arrays = {"weight": weight.tolist(), "gradients": (gradients * rescale).tolist()}
    return {"name": name, "keywords": keywords, **arrays}


@cache
def mxnets_weights() -> list[Any]:
    """Return the weights of every case after every step."""
    requests = []
    for name, parameters in AGAINST_MXNET:
        names = MXNETS_NAMES | ({"epsilon": "eps"} if name == "adagrad" else {})
        keywords = {names.get(key, key): value for key, value in parameters.items()}
        requests.append(request(name, {**keywords, "rescale_grad": 0.5}))
    requests += [request("clip_global_norm", [norm]) for norm in NORMS]
    return run_in(MXNet, MXNET, [*requests, request("adamw", [*ADAMW.values(), 0.5])])


@pytest.mark.parametrize("case", range(len(AGAINST_MXNET)), ids=lambda i: str(AGAINST_MXNET[i]))
def test_steps_equal_those_of_mxnets_optimizer(case: int) -> None:
    compare(*AGAINST_MXNET[case], mxnets_weights()[case])


def test_adamw_steps_equal_those_of_mxnets_operator() -> None:
    compare("adamw", ADAMW, mxnets_weights()[-1])


@pytest.mark.parametrize("index", range(len(NORMS)))
def test_gradients_scaled_to_a_norm_equal_mxnets(index: int) -> None:
    _, gradients = start()
    parameters = {"num_args": STEPS, "max_norm": NORMS[index]}
    prop = create("_global_norm_scale", parameters)
    for implementation in all_implementations(prop):
        inputs = [*gradients, np.ones(1, np.float32)]
        run = forward(implementation, prop, inputs, [np.zeros(1, np.float32)])
        assert run is not None
        theirs = mxnets_weights()[len(AGAINST_MXNET) + index]
        np.testing.assert_allclose(gradients * run.outputs[0], theirs, rtol=1e-6)


@cache
def pytorchs_weights() -> list[Any]:
    """Return the weights of every case after every step."""
    requests = [request(name, keywords, 0.5) for _, _, name, keywords in AGAINST_TORCH]
    return run_in(PyTorch, TORCH, requests)


@pytest.mark.parametrize("case", range(len(AGAINST_TORCH)), ids=lambda i: str(AGAINST_TORCH[i][:2]))
def test_steps_equal_those_of_pytorchs_optimizer(case: int) -> None:
    compare(*AGAINST_TORCH[case][:2], pytorchs_weights()[case])
