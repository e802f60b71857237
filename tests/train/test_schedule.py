"""Learning-rate schedules: MXNet's and PyTorch's values where they have them, and properties."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.peer import MXNet, PyTorch
from peer_scripts import run_in

from mxrun.base.errors import UserError
from mxrun.base.params import check
from mxrun.train.progress import SavedPlateau
from mxrun.train.schedule import SCHEDULES, Plateau, PlateauState, Schedule

BASE, TOTAL, PER_EPOCH = 0.4, 60, 10

MXNET = """
import mxnet as mx

def answer(request):
    schedule = getattr(mx.lr_scheduler, request["name"])(**request["keywords"])
    return [schedule(update) for update in range(1, request["steps"] + 1)]
"""

# The rate before and after every step.
TORCH = """
import torch

def answer(request):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=request["base"])
    schedule = getattr(torch.optim.lr_scheduler, request["name"])(
        optimizer, **request["keywords"])
    rates = [optimizer.param_groups[0]["lr"]]
    for argument in request["arguments"]:
        optimizer.step()
        schedule.step(*argument)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates
"""


def made(name: str, parameters: dict[str, Any]) -> Schedule:
    return SCHEDULES.get(name).model_validate(parameters)


def rates(name: str, parameters: dict[str, Any]) -> list[float]:
    schedule = made(name, parameters)
    return [schedule.rate(step, TOTAL, PER_EPOCH, BASE) for step in range(1, TOTAL + 1)]


AGAINST_MXNET: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("step", {"steps": 9, "factor": 0.5}, "FactorScheduler", {"step": 9, "factor": 0.5}),
    ("step", {"steps": 5, "factor": 0.1}, "FactorScheduler", {"step": 5, "factor": 0.1}),
    (
        "step",
        {"steps": 4, "factor": 0.5, "stop_factor_lr": 0.02},
        "FactorScheduler",
        {"step": 4, "factor": 0.5, "stop_factor_lr": 0.02},
    ),
    (
        "multistep",
        {"steps": (15, 16, 40), "factor": 0.2},
        "MultiFactorScheduler",
        {"step": [15, 16, 40], "factor": 0.2},
    ),
    ("cosine", {}, "CosineScheduler", {}),
    ("cosine", {"final": 0.1}, "CosineScheduler", {"final_lr": 0.04}),
    ("linear", {"final": 0.5}, "PolyScheduler", {"pwr": 1, "final_lr": 0.2}),
    ("polynomial", {}, "PolyScheduler", {}),
    ("polynomial", {"power": 0.9, "final": 0.1}, "PolyScheduler", {"pwr": 0.9, "final_lr": 0.04}),
]
WARM_UPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    *(
        (
            {"warmup_steps": 7, "warmup_begin": 0.25, "warmup_mode": mode},
            {"warmup_steps": 7, "warmup_begin_lr": 0.1, "warmup_mode": mode},
        )
        for mode in ("linear", "constant")
    ),
]


@cache
def mxnets_rates() -> list[list[float]]:
    """Return the rates of every case without and with each warm-up."""
    requests = []
    for _, _, name, keywords in AGAINST_MXNET:
        end = {} if "Factor" in name else {"max_update": TOTAL}
        for _, warm in WARM_UPS:
            every = {**keywords, **end, **warm, "base_lr": BASE}
            requests.append({"name": name, "keywords": every, "steps": TOTAL})
    return run_in(MXNet, MXNET, requests)


@pytest.mark.parametrize("case", range(len(AGAINST_MXNET)), ids=lambda i: str(AGAINST_MXNET[i][:2]))
@pytest.mark.parametrize("warm", range(len(WARM_UPS)))
def test_rates_equal_those_of_mxnets_schedulers(case: int, warm: int) -> None:
    expected = mxnets_rates()[case * len(WARM_UPS) + warm]
    name, parameters, _, _ = AGAINST_MXNET[case]
    got = rates(name, {**parameters, **WARM_UPS[warm][0]})
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-16)


# Schedules that end with the run are shifted by one step, because here the last step has the last
# value: PyTorch's run one more step, and their first rate is left out.
AGAINST_TORCH: list[tuple[str, dict[str, Any], str, dict[str, Any], slice]] = [
    ("constant", {}, "ConstantLR", {"factor": 1.0}, slice(TOTAL)),
    ("step", {"steps": 9}, "StepLR", {"step_size": 9}, slice(TOTAL)),
    (
        "step",
        {"steps": 5, "stop_factor_lr": 0.0},
        "StepLR",
        {"step_size": 5},
        slice(TOTAL),
    ),
    (
        "multistep",
        {"epochs": (2, 5), "factor": 0.3},
        "MultiStepLR",
        {"milestones": [20, 50], "gamma": 0.3},
        slice(TOTAL),
    ),
    (
        "cosine",
        {"final": 0.1},
        "CosineAnnealingLR",
        {"T_max": TOTAL, "eta_min": 0.04},
        slice(1, None),
    ),
    (
        "linear",
        {"final": 0.5},
        "LinearLR",
        {"start_factor": 1.0, "end_factor": 0.5, "total_iters": TOTAL},
        slice(1, None),
    ),
    (
        "polynomial",
        {"power": 3.0},
        "PolynomialLR",
        {"power": 3, "total_iters": TOTAL},
        slice(1, None),
    ),
    (
        "one_cycle",
        {},
        "OneCycleLR",
        {"max_lr": BASE, "total_steps": TOTAL + 1, "cycle_momentum": False},
        slice(None),
    ),
    (
        "one_cycle",
        {
            "peak": 5.0,
            "rise": 0.41,
            "anneal": "linear",
            "start_divisor": 10.0,
            "final_divisor": 100.0,
        },
        "OneCycleLR",
        {
            "max_lr": 2.0,
            "total_steps": TOTAL + 1,
            "pct_start": 0.41,
            "anneal_strategy": "linear",
            "div_factor": 10,
            "final_div_factor": 100,
            "cycle_momentum": False,
        },
        slice(None),
    ),
]
# Warm-ups of less than one step, and of none.
AGAINST_TORCH += [
    (
        "one_cycle",
        {"rise": rise, "anneal": anneal},
        "OneCycleLR",
        {
            "max_lr": BASE,
            "total_steps": TOTAL + 1,
            "pct_start": rise,
            "anneal_strategy": {"cosine": "cos"}.get(anneal, anneal),
            "cycle_momentum": False,
        },
        slice(None),
    )
    for rise, anneal in [(0.0, "cosine"), (0.01, "cosine"), (0.01, "linear")]
]
CYCLIC = {"base_lr": 0.04, "max_lr": BASE, "step_size_up": 6, "cycle_momentum": False}
AGAINST_TORCH += [
    ("cosine_restarts", {"steps": 7}, "CosineAnnealingWarmRestarts", {"T_0": 7}, slice(None)),
    (
        "cosine_restarts",
        {"epochs": 1, "growth": 2, "final": 0.1},
        "CosineAnnealingWarmRestarts",
        {"T_0": PER_EPOCH, "T_mult": 2, "eta_min": 0.04},
        slice(None),
    ),
    (
        "cyclic",
        {"steps": 20, "first": 0.1, "rise": 0.3},
        "CyclicLR",
        {**CYCLIC, "step_size_down": 14},
        slice(None),
    ),
    (
        "cyclic",
        {"steps": 12, "first": 0.1, "shrink": 0.5},
        "CyclicLR",
        {**CYCLIC, "mode": "triangular2"},
        slice(None),
    ),
    (
        "cyclic",
        {"steps": 12, "first": 0.1, "decay": 0.9},
        "CyclicLR",
        {**CYCLIC, "mode": "exp_range", "gamma": 0.9},
        slice(None),
    ),
]
BETTER_AND_WORSE = [
    *[3.0, 2.9, 2.95, 2.95, 2.9, 2.89999, 2.5, 2.6, 2.6, 2.6, 2.6, 2.6, 2.6, 2.6, 2.4, 9.0],
    float("nan"),
    *[3.0, 2.9, 2.95, 2.95, 2.9, 2.3, 2.29999, 2.6, 2.6, 1.0, 2.6, 2.6, 2.6, 2.6, 2.4, 9.0],
]
PLATEAUS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"patience": 0, "factor": 0.5}, {"patience": 0, "factor": 0.5}),
    ({"patience": 2, "cooldown": 3}, {"patience": 2, "cooldown": 3}),
    (
        {"patience": 1, "threshold": 0.1, "mode": "max", "min": 0.005},
        {"patience": 1, "threshold": 0.1, "mode": "max", "min_lr": 0.002},
    ),
    # Reductions that would change less than eps, whichever it is.
    ({"patience": 0, "factor": 0.01}, {"patience": 0, "factor": 0.01}),
    (
        {"patience": 0, "factor": 0.9, "eps": 0.02, "min": 0.3, "cooldown": 1},
        {"patience": 0, "factor": 0.9, "eps": 0.02, "min_lr": 0.12, "cooldown": 1},
    ),
    ({"patience": 0, "eps": 0.0}, {"patience": 0, "eps": 0.0}),
]


@cache
def pytorchs_rates() -> list[list[float]]:
    """Return the rates of every case, then an exponential's by epoch, then all plateaus'."""
    asked = [(name, keywords, [[]] * TOTAL) for _, _, name, keywords, _ in AGAINST_TORCH]
    asked.append(("ExponentialLR", {"gamma": 0.7}, [[]] * (TOTAL // PER_EPOCH)))
    observed = [[value] for value in BETTER_AND_WORSE]
    asked += [("ReduceLROnPlateau", k, observed) for _, k in PLATEAUS]
    fields = ("name", "keywords", "arguments")
    requests = [{"base": BASE, **dict(zip(fields, each, strict=True))} for each in asked]
    return run_in(PyTorch, TORCH, requests)


@pytest.mark.parametrize("case", range(len(AGAINST_TORCH)), ids=lambda i: str(AGAINST_TORCH[i][:2]))
def test_rates_equal_those_of_pytorchs_schedulers(case: int) -> None:
    name, parameters, _, _, part = AGAINST_TORCH[case]
    expected = pytorchs_rates()[case][part]
    schedule = made(name, parameters)
    total = TOTAL + 1 if name == "one_cycle" else TOTAL
    got = [schedule.rate(step, total, PER_EPOCH, BASE) for step in range(1, len(expected) + 1)]
    assert len(got) >= TOTAL
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_exponential_has_pytorchs_values_at_the_start_of_every_epoch() -> None:
    got = rates("exponential", {"factor": 0.7})
    expected = pytorchs_rates()[len(AGAINST_TORCH)][:-1]
    assert got[::PER_EPOCH] == pytest.approx(expected, rel=1e-12)
    assert all(later < earlier for earlier, later in pairwise(got))


@pytest.mark.parametrize("case", range(len(PLATEAUS)))
def test_plateaus_equal_pytorchs(case: int) -> None:
    expected = pytorchs_rates()[len(AGAINST_TORCH) + 1 + case]
    state = Plateau.model_validate(PLATEAUS[case][0]).start()
    got = [state.rate(1, TOTAL, PER_EPOCH, BASE)]
    for value in BETTER_AND_WORSE:
        state = state.observe(value)
        got.append(state.rate(1, TOTAL, PER_EPOCH, BASE))
    assert got == pytest.approx(expected, rel=1e-9)


# Every kind, with parameters of its own.
EVERY: dict[str, dict[str, Any]] = {
    "constant": {},
    "step": {"epochs": 2, "stop_factor_lr": 0.0},
    "multistep": {"epochs": (1, 3)},
    "cosine": {"final": 0.01},
    "linear": {},
    "polynomial": {"power": 3.0},
    "cosine_restarts": {"steps": 7, "growth": 2, "final": 0.1},
    "cyclic": {"epochs": 2, "first": 0.1, "peak": 2.0, "rise": 0.3, "shrink": 0.5, "decay": 0.9},
    "exponential": {"factor": 0.9},
    "one_cycle": {"peak": 3.0},
    "plateau": {},
}
kinds = st.sampled_from(sorted(EVERY))
steps = st.integers(1, 5000)


def test_every_schedule_is_in_the_table() -> None:
    assert set(EVERY) == set(SCHEDULES)


@given(kinds, steps, steps, st.integers(1, 500), st.integers(0, 5000))
def test_every_step_has_a_finite_rate_of_at_least_zero(
    name: str, step: int, total: int, per_epoch: int, warmup: int
) -> None:
    """Also where the warm-up is longer than the training."""
    schedule = made(name, {**EVERY[name], "warmup_steps": warmup})
    rate = schedule.rate(min(step, total), total, per_epoch, BASE)
    assert 0 <= rate <= BASE * max(1.0, EVERY[name].get("peak", 1.0)) * (1 + 1e-12)


@given(kinds, st.integers(2, 50), st.floats(0, 1))
def test_the_warm_up_grows_evenly_to_the_full_rate(name: str, warmup: int, begin: float) -> None:
    parameters = {**EVERY[name], "warmup_steps": warmup, "warmup_begin": begin}
    got = [made(name, parameters).rate(step, 1000, 100, BASE) for step in range(1, warmup + 1)]
    full = BASE * {"one_cycle": 3 / 25, "cyclic": 0.1}.get(name, 1)
    assert got[-1] == pytest.approx(full)
    whole = [begin * BASE, *got]
    increments = [later - earlier for earlier, later in zip(whole, got, strict=False)]
    assert increments == pytest.approx([(full - begin * BASE) / warmup] * warmup, abs=1e-12)


@given(kinds, steps, st.floats(1e-6, 10))
def test_rates_are_proportional_to_the_optimizers(name: str, step: int, base: float) -> None:
    schedule = made(name, {**EVERY[name], "warmup_steps": 5})
    one, other = schedule.rate(step, 5000, 100, 1.0), schedule.rate(step, 5000, 100, base)
    assert other == pytest.approx(one * base, rel=1e-12)


@pytest.mark.parametrize("name", ["cosine", "linear", "polynomial"])
@pytest.mark.parametrize("warmup", [0, 1, 20, 59])
def test_the_last_step_has_the_final_rate(name: str, warmup: int) -> None:
    got = rates(name, {"final": 0.125, "warmup_steps": warmup})
    assert got[-1] == pytest.approx(BASE / 8, rel=1e-12)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_rates_depend_on_the_length_of_the_run_as_declared(name: str) -> None:
    schedule = made(name, EVERY[name])
    short, long = (
        [schedule.rate(step, total, PER_EPOCH, BASE) for step in range(1, TOTAL + 1)]
        for total in (TOTAL, 2 * TOTAL)
    )
    assert (short != long) is schedule.depends_on_length


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40), st.data())
def test_a_plateau_goes_on_from_json_as_if_it_had_not_stopped(
    values: list[float], data: st.DataObject
) -> None:
    plateau = Plateau(patience=1, cooldown=1)
    cut = data.draw(st.integers(0, len(values)))

    def observed(state: PlateauState, some: list[float]) -> PlateauState:
        for value in some:
            state = state.observe(value)
        return state

    before = observed(plateau.start(), values[:cut])
    text = json.dumps(before.saved().model_dump(), allow_nan=False)
    resumed = plateau.resume(SavedPlateau(**json.loads(text)))
    assert resumed == before
    assert observed(resumed, values[cut:]) == observed(before, values[cut:])


def test_a_plateau_reduces_its_warm_up_too() -> None:
    state = Plateau(patience=0, warmup_steps=10).start().observe(1.0).observe(1.0)
    assert state.rate(5, TOTAL, PER_EPOCH, BASE) == pytest.approx(BASE * 0.5 * 0.1)


@pytest.mark.parametrize(
    ("name", "parameters", "problem"),
    [
        ("step", {}, "give either steps or epochs"),
        ("step", {"steps": 1, "epochs": 1}, "give either steps or epochs"),
        ("step", {"steps": 0}, "'steps' cannot be 0"),
        ("step", {"epochs": 1, "factor": 0.0}, "'factor' cannot be 0.0"),
        ("step", {"epochs": 1, "factor": 1.5}, "'factor' cannot be 1.5"),
        ("multistep", {"epochs": ()}, "'epochs' cannot be []"),
        ("multistep", {"epochs": (3, 3)}, "steps or epochs must increase"),
        ("multistep", {"steps": (5, 4)}, "steps or epochs must increase"),
        ("exponential", {}, "parameter 'factor' is missing"),
        ("cosine", {"final": -0.1}, "'final' cannot be -0.1"),
        ("polynomial", {"power": 0.0}, "'power' cannot be 0.0"),
        ("one_cycle", {"rise": 1.5}, "'rise' cannot be 1.5"),
        ("one_cycle", {"anneal": "cos"}, "'anneal' cannot be 'cos'"),
        ("plateau", {"mode": "least"}, "'mode' cannot be 'least'"),
        ("constant", {"warmup_steps": -1}, "'warmup_steps' cannot be -1"),
        ("constant", {"warmup_begin": 2.0}, "'warmup_begin' cannot be 2.0"),
        ("constant", {"warm_up": 2}, "unknown parameter 'warm_up'"),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict[str, Any], problem: str) -> None:
    schedule, problems = check(SCHEDULES.get(name), parameters)
    assert schedule is None
    assert any(problem in found.problem for found in problems), problems


def test_an_unknown_schedule_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match="cosine"):
        SCHEDULES.get("cosin")


@pytest.mark.parametrize("name", sorted(EVERY))
def test_P15_every_parameter_is_documented(name: str) -> None:
    schema = SCHEDULES.get(name).model_json_schema()
    assert schema["description"]
    assert all(field["description"].endswith(".") for field in schema["properties"].values())
