"""Update rules of optimizers: MXNet's weight decay, rescaling and clipping."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.params import check
from mxrun.graph.update_rule import Multipliers, UpdateRule, update_rule, update_rules
from mxrun.operator.optimizer import OPTIMIZERS, Optimizer
from mxrun.operator.register import create
from mxrun.ops.optimizers.adam import Adam
from mxrun.ops.optimizers.adamw import AdamW
from mxrun.ops.optimizers.lamb import Lamb
from mxrun.ops.optimizers.sgd import Sgd

library.load()
EACH = Multipliers()
MXNETS_RATES = {
    **dict.fromkeys(("sgd", "nag", "signum", "adagrad"), 0.01),
    **dict.fromkeys(("adam", "adamw", "lamb", "rmsprop"), 0.001),
    "ftrl": 0.1,
}


def test_without_momentum_there_is_no_state() -> None:
    rule = update_rule(Sgd(lr=0.1, wd=1e-4), "fc1_weight", EACH)
    assert rule == UpdateRule(
        "sgd_update",
        {
            "lr": 1.0,
            "wd": 1e-4,
            "clip_gradient": -1.0,
            "scheduled": True,
            "scaled": True,
        },
    )


def test_momentum_takes_the_update_with_a_state() -> None:
    rule = update_rule(Sgd(momentum=0.9), "fc1_weight", EACH)
    assert rule.operator == "sgd_mom_update"
    assert rule.parameters["momentum"] == 0.9


@pytest.mark.parametrize(
    ("name", "decay"),
    [("fc1_weight", 0.5), ("fc1_bias", 0), ("bn_gamma", 0), ("bn_beta", 0), ("table", 0.5)],
)
def test_decay_spares_biases_gammas_and_betas(name: str, decay: float) -> None:
    assert update_rule(Sgd(wd=0.5), name, EACH).parameters["wd"] == decay


@pytest.mark.parametrize("name", ["fc1_weight", "fc1_bias"])
def test_multipliers_say_otherwise(name: str) -> None:
    rule = update_rule(Sgd(wd=0.5), name, Multipliers(learning_rate=10.0, weight_decay=2.0))
    assert (rule.parameters["lr"], rule.parameters["wd"]) == (10.0, 1.0)


def test_adamws_decay_follows_the_rate_multiplier() -> None:
    rule = update_rule(AdamW(wd=0.5), "fc1_weight", Multipliers(learning_rate=10.0))
    assert {key: rule.parameters[key] for key in ("lr", "eta", "wd")} == {
        "lr": 1.0,
        "eta": 10.0,
        "wd": 0.5,
    }


def test_clipping_can_be_given() -> None:
    rule = update_rule(Sgd(clip_gradient=0.25), "fc1_weight", EACH)
    assert rule.parameters["clip_gradient"] == 0.25


def test_every_trained_parameter_gets_a_rule_in_order() -> None:
    trained = {"b_weight": EACH, "a_bias": Multipliers(learning_rate=2.0)}
    rules = update_rules(Sgd(), trained)
    assert list(rules) == ["b_weight", "a_bias"]
    assert rules["a_bias"].parameters["lr"] == 2.0


STATES: list[tuple[str, dict[str, object], str, tuple[str, ...]]] = [
    ("sgd", {}, "sgd_update", ()),
    ("sgd", {"momentum": 0.9}, "sgd_mom_update", ("mom",)),
    ("nag", {}, "sgd_update", ()),
    ("nag", {"momentum": 0.9}, "nag_mom_update", ("mom",)),
    ("signum", {"momentum": 0.0}, "signsgd_update", ()),
    ("signum", {"wd_lh": 0.1}, "signum_update", ("mom",)),
    ("adam", {}, "adam_update", ("mean", "var")),
    ("adamw", {}, "adamw_update", ("mean", "var")),
    ("lamb", {"upper_bound": 1.0}, "lamb_update", ("mean", "var")),
    ("adagrad", {}, "adagrad_update", ("history",)),
    ("rmsprop", {"clip_weights": 1.0}, "rmsprop_update", ("n",)),
    ("rmsprop", {"centered": True}, "rmspropalex_update", ("n", "g", "delta")),
    ("ftrl", {}, "ftrl_update", ("z", "n")),
]


@pytest.mark.parametrize(("name", "own", "operator", "states"), STATES)
@pytest.mark.parametrize("norm", [None, 1.0])
def test_the_operators_take_the_rules(
    name: str, own: dict[str, object], operator: str, states: tuple[str, ...], norm: float | None
) -> None:
    common = {"wd": 1e-4, "clip_gradient": 1.0, "clip_global_norm": norm}
    optimizer = OPTIMIZERS.get(name).model_validate({**own, **common})
    rule = update_rule(optimizer, "fc1_weight", EACH)
    assert rule.operator == operator
    prop = create(rule.operator, rule.parameters)
    assert prop.list_arguments() == ("weight", "grad", *states, "gradient_scale", "schedule")
    assert prop.list_mutated_inputs() == {0: 0, **{2 + i: 1 + i for i in range(len(states))}}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_the_update_of_every_optimizer_takes_its_fields_and_the_step(name: str) -> None:
    rule = update_rule(OPTIMIZERS.get(name).model_validate({}), "fc1_weight", EACH)
    arguments = create(rule.operator, rule.parameters).list_arguments()
    assert (arguments[:2], arguments[-1]) == (("weight", "grad"), "schedule")


@pytest.mark.parametrize(("name", "rate"), MXNETS_RATES.items())
def test_defaults_are_those_of_mxnets_classes(name: str, rate: float) -> None:
    optimizer = OPTIMIZERS.get(name).model_validate({})
    assert optimizer.lr == rate
    assert (optimizer.wd, optimizer.clip_gradient, optimizer.clip_global_norm) == (0.0, None, None)


@pytest.mark.parametrize("optimizer", [Adam(beta1=0.5), AdamW(beta1=0.5), Lamb(beta1=0.5)])
def test_moments_are_corrected_from_the_first_step_on(optimizer: Optimizer) -> None:
    assert optimizer.corrections(1) == (0.5, pytest.approx(0.001))
    assert optimizer.corrections(2) == (0.75, pytest.approx(0.001999))
    assert optimizer.corrections(10**6) == (1.0, 1.0)


def test_others_correct_nothing() -> None:
    for optimizer in (Sgd(momentum=0.9), Lamb(bias_correction=False)):
        assert optimizer.corrections(1) == (1.0, 1.0)


def test_unknown_and_bad_parameters_are_refused() -> None:
    with pytest.raises(UserError, match="sgd"):
        OPTIMIZERS.get("sdg").model_validate({})
    assert OPTIMIZERS.get("sgd").model_validate({"lr": 0.5}) == Sgd(lr=0.5)
    for bad in (
        *({"lr": -1.0}, {"momentum": 1.0}, {"wd": -1e-4}, {"clip_gradient": 0.0}, {"l": 1}),
        *({"clip_global_norm": 0.0}, {"clip_global_norm": -1.0}),
    ):
        with pytest.raises(ValidationError):
            OPTIMIZERS.get("sgd").model_validate(bad)


def test_a_decay_that_would_not_act_is_refused() -> None:
    signum, problems = check(OPTIMIZERS.get("signum"), {"momentum": 0.0, "wd_lh": 0.1})
    assert signum is None
    assert problems[0].problem.endswith(
        "wd_lh requires momentum; without momentum, wd has the same effect"
    )


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_P15_every_parameter_is_documented(name: str) -> None:
    schema = OPTIMIZERS.get(name).model_json_schema()
    assert schema["description"]
    assert all(field["description"].endswith(".") for field in schema["properties"].values())
