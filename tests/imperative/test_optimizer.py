"""Optimizers for programs: MXNet's steps, rates and multipliers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from mxnet_programs import Outcome, assert_equal_outcomes, mxnets_outcomes, our_outcome

import mxrun
from mxrun.base.errors import UserError

nd = mxrun.nd
STEPS = """
made = optimizer.create({name!r}, {parameters})
update = optimizer.get_updater(made)
weight = nd.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.125]])
for step in range(4):
    gradient = nd.array([[1.0, -0.5, 0.25], [-2.0, step, 0.0]])
    update(0, gradient, weight)
    show(weight)
show(made.learning_rate, made.num_update)
"""
# NAG without weight decay: MXNet's operator applies the decay to the new weight.
CASES = {
    "sgd": "learning_rate=0.1, wd=0.1",
    "SGD": "learning_rate=0.1, momentum=0.9, wd=0.1, clip_gradient=0.5, rescale_grad=0.25",
    "nag": "learning_rate=0.1, momentum=0.9, clip_gradient=0.5",
    "signum": "learning_rate=0.1, momentum=0.5, wd=0.1, wd_lh=0.2",
    "adam": "",
    "Adam": "learning_rate=0.1, beta1=0.5, beta2=0.9, epsilon=0.1, wd=0.1, begin_num_update=3",
    "lamb": "learning_rate=0.1, wd=0.1, lower_bound=5.0",
    "adagrad": "learning_rate=0.1, eps=0.1, wd=0.1",
    "rmsprop": "learning_rate=0.1, gamma1=0.5, wd=0.1, clip_weights=1.0",
    "RMSProp": "centered=True, gamma2=0.5, wd=0.1",
    "ftrl": "learning_rate=0.5, lamda1=1.0, beta=0.5, wd=0.1",
}
PROGRAMS = {name: STEPS.format(name=name, parameters=CASES[name]) for name in CASES}


@cache
def mxnets() -> dict[str, Outcome]:
    return dict(zip(PROGRAMS, mxnets_outcomes(list(PROGRAMS.values())), strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_equal_mxnets(name: str) -> None:
    assert_equal_outcomes(our_outcome(PROGRAMS[name]), mxnets()[name], tolerance=1e-5)


@pytest.mark.parametrize(
    "name", ["sgd", "nag", "adam", "adamw", "lamb", "adagrad", "rmsprop", "ftrl", "signum"]
)
def test_weights_are_updated_in_place(name: str) -> None:
    weight, gradient = nd.ones((4, 3)), nd.ones((4, 3))
    view = weight.reshape(12)
    update = mxrun.optimizer.get_updater(mxrun.optimizer.create(name, learning_rate=0.1))
    update("weight", gradient, weight)
    once = view.asnumpy()
    update(["weight"], [gradient], [weight])
    assert not np.array_equal(once, np.ones(12))
    assert not np.array_equal(once, view.asnumpy())
    assert gradient.asnumpy().tolist() == np.ones((4, 3)).tolist()


def test_errors_use_the_names_of_the_arguments() -> None:
    create = mxrun.optimizer.create
    with pytest.raises(UserError, match=r"unknown optimizer 'sdg'.*\n.*did you mean 'sgd'"):
        create("sdg")
    with pytest.raises(UserError, match="'learning_rate'"):
        create("sgd", learning_rate=-1.0)
    with pytest.raises(UserError, match="did you mean 'learning_rate'"):
        create("sgd", lr=0.1)
    with pytest.raises(UserError, match="momentun"):
        create("sgd", momentun=0.9)
    with pytest.raises(UserError, match="one gradient at a time"):
        create("sgd", clip_global_norm=1.0)
    with pytest.raises(UserError, match="does not know the batch size"):
        create("sgd", rescale_grad="batch_size")
    with pytest.raises(UserError, match="got: float and NDArray"):
        mxrun.optimizer.get_updater(create("sgd"))(0, 1.0, nd.ones((2,)))


def test_the_rate_of_a_scheduler_cannot_be_set() -> None:
    scheduled = mxrun.optimizer.create("sgd", lr_scheduler=lambda count: 1 / (count + 1))
    assert scheduled.learning_rate == 1.0
    with pytest.raises(UserError, match="lr_scheduler"):
        scheduled.set_learning_rate(0.5)
    plain = mxrun.optimizer.create("sgd", learning_rate=0.5)
    plain.set_learning_rate(0.25)
    weight = nd.zeros((2,))
    mxrun.optimizer.get_updater(plain)(0, nd.ones((2,)), weight)
    assert weight.asnumpy().tolist() == [-0.25, -0.25]


def test_biases_gammas_and_betas_are_not_decayed_unless_asked_for() -> None:
    names = {0: "fc_weight", 1: "fc_bias", 2: "bn_gamma", 3: "bn_beta", 4: "embedding"}
    made = mxrun.optimizer.create("sgd", learning_rate=1.0, wd=0.5, param_idx2name=names)
    made.set_wd_mult({"bn_beta": 1.0})
    update, found = mxrun.optimizer.get_updater(made), []
    for index in names:
        weight = nd.ones((1,))
        update(index, nd.zeros((1,)), weight)
        found.append(weight.asscalar())
    assert found == [0.5, 1.0, 1.0, 0.5, 0.5]
