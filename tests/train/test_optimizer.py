"""From an optimiser to update rules: MXNet's decay, rescaling and clipping."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.graph.passes.updates import UpdateRule
from mxrun.operator.register import create
from mxrun.train.optimizer import OPTIMIZERS, Multipliers, Sgd, update_rules

EACH = Multipliers()


def test_without_momentum_there_is_no_state() -> None:
    rule = Sgd(lr=0.1, wd=1e-4).rule("fc1_weight", EACH, batch_size=64)
    assert rule == UpdateRule(
        "sgd_update",
        {
            "lr": 1.0,
            "wd": 1e-4,
            "rescale_grad": 1 / 64,
            "clip_gradient": -1.0,
            "scheduled": True,
        },
    )


def test_momentum_takes_the_update_with_a_state() -> None:
    rule = Sgd(momentum=0.9).rule("fc1_weight", EACH, batch_size=1)
    assert rule.operator == "sgd_mom_update"
    assert rule.parameters["momentum"] == 0.9


@pytest.mark.parametrize(
    ("name", "decay"),
    [("fc1_weight", 0.5), ("fc1_bias", 0), ("bn_gamma", 0), ("bn_beta", 0), ("table", 0.5)],
)
def test_decay_spares_biases_gammas_and_betas(name: str, decay: float) -> None:
    assert Sgd(wd=0.5).rule(name, EACH, 1).parameters["wd"] == decay


@pytest.mark.parametrize("name", ["fc1_weight", "fc1_bias"])
def test_multipliers_say_otherwise(name: str) -> None:
    rule = Sgd(wd=0.5).rule(name, Multipliers(learning_rate=10.0, weight_decay=2.0), 1)
    assert (rule.parameters["lr"], rule.parameters["wd"]) == (10.0, 1.0)


def test_rescaling_and_clipping_can_be_given() -> None:
    rule = Sgd(rescale_grad=1.0, clip_gradient=0.25).rule("fc1_weight", EACH, 64)
    assert (rule.parameters["rescale_grad"], rule.parameters["clip_gradient"]) == (1.0, 0.25)


def test_every_trained_parameter_gets_a_rule_in_order() -> None:
    trained = {"b_weight": EACH, "a_bias": Multipliers(learning_rate=2.0)}
    rules = update_rules(Sgd(), trained, batch_size=8)
    assert list(rules) == ["b_weight", "a_bias"]
    assert rules["a_bias"].parameters["lr"] == 2.0


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_operators_take_the_rules(momentum: float) -> None:
    library.load()
    rule = Sgd(momentum=momentum, wd=1e-4, clip_gradient=1.0).rule("fc1_weight", EACH, 64)
    prop = create(rule.operator, rule.parameters)
    states = ("mom",) if momentum else ()
    assert prop.list_arguments() == ("weight", "grad", *states, "schedule")


def test_unknown_and_bad_parameters_are_refused() -> None:
    with pytest.raises(UserError, match="sgd"):
        OPTIMIZERS.get("sdg").model_validate({})
    assert OPTIMIZERS.get("sgd").model_validate({"lr": 0.5}) == Sgd(lr=0.5)
    for bad in ({"lr": -1.0}, {"momentum": 1.0}, {"wd": -1e-4}, {"clip_gradient": 0.0}, {"l": 1}):
        with pytest.raises(ValidationError):
            OPTIMIZERS.get("sgd").model_validate(bad)


def test_numbers_stay_exact() -> None:
    rule = Sgd().rule("fc1_weight", EACH, batch_size=3)
    assert np.float32(rule.parameters["rescale_grad"]) == np.float32(1 / 3)
