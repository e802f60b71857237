"""NaN or infinity in a gradient shows in the new weight or a new state, clipped or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import all_implementations, forward, implementations

from mxrun.operator.register import OPERATORS, AnyProperty, create

Array = npt.NDArray[Any]
PLACE = 7

UPDATES = [name for name in OPERATORS if name.endswith("_update")]
BAD = [np.nan, np.inf, -np.inf]


def updates(name: str, clip: float, rate: float = 0.1) -> AnyProperty:
    own: dict[str, object] = {"lr": rate}
    if name == "adamw_update":
        own["eta"] = rate
    if name.startswith("rmsprop"):
        own["clip_weights"] = clip
    return create(name, {**own, "scaled": True, "scheduled": True, "clip_gradient": clip})


def inputs(prop: AnyProperty, gradient: Array, scale: float) -> list[Array]:
    special = {
        "grad": gradient,
        "gradient_scale": np.array([scale], np.float32),
        "schedule": np.array([0.5, 0.5, 0.25], np.float32),
    }
    usual = np.full(gradient.shape, 0.25, np.float32)
    return [special.get(name, usual) for name in prop.list_arguments()]


def outputs(prop: AnyProperty, gradient: Array, scale: float = 1.0) -> list[list[Array]]:
    """Return the outputs of every implementation."""
    blank = [np.zeros_like(gradient) for _ in prop.list_outputs()]
    runs = [
        forward(implementation, prop, inputs(prop, gradient, scale), blank)
        for implementation in all_implementations(prop)
    ]
    assert len(runs) == 2
    return [run.outputs for run in runs if run is not None]


@pytest.mark.parametrize("clip", [-1.0, 0.0, 0.5])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", UPDATES)
def test_a_gradient_that_is_not_finite_shows(name: str, bad: float, clip: float) -> None:
    gradient = np.full(40, 0.5, np.float32)
    gradient[PLACE] = bad
    for updated in outputs(updates(name, clip), gradient):
        finite = np.isfinite(updated).all(axis=0)
        assert not finite[PLACE]
        # LAMB's norms spread it over the entire weight.
        assert name == "lamb_update" or np.delete(finite, PLACE).all()


@pytest.mark.parametrize("clip", [-1.0, 0.5])
@pytest.mark.parametrize("name", UPDATES)
def test_a_scale_that_is_not_finite_shows(name: str, clip: float) -> None:
    """The scale is NaN where the norm of all gradients is not finite."""
    for updated in outputs(updates(name, clip), np.full(40, 0.5, np.float32), scale=np.nan):
        assert not np.isfinite(updated).all(axis=0).any()


# Momentum in rmspropalex moves the weight even so.
@pytest.mark.parametrize("name", [name for name in UPDATES if name != "rmspropalex_update"])
def test_a_rate_of_zero_changes_no_weight(name: str) -> None:
    """Occurs at the end of a schedule, or with a multiplier of 0."""
    for updated in outputs(updates(name, -1.0, rate=0.0), np.full(40, 0.5, np.float32)):
        np.testing.assert_array_equal(updated[0], np.float32(0.25))
        assert np.isfinite(updated).all()


@pytest.mark.parametrize("bad", BAD)
def test_a_norm_that_is_not_finite_gives_no_scale(bad: float) -> None:
    prop = create("_global_norm_scale", {"num_args": 2, "max_norm": 1.0})
    for place in (0, 4095, 5000):
        gradients = [np.ones(3, np.float32), np.zeros(5001, np.float32)]
        gradients[1][place] = bad
        inputs = [*gradients, np.ones(1, np.float32)]
        for implementation in all_implementations(prop):
            run = forward(implementation, prop, inputs, [np.zeros(1, np.float32)])
            assert run is not None
            assert np.isnan(run.outputs[0][0]), implementation.name


@pytest.mark.parametrize("operator", ["_global_norm_scale", "lamb_update"])
def test_norms_have_the_same_bits_for_every_number_of_threads(operator: str) -> None:
    random = np.random.default_rng(2)
    if operator == "lamb_update":
        prop = create(operator, {"lr": 0.1, "wd": 0.1})
    else:
        prop = create(operator, {"num_args": 4, "max_norm": 1.0})
    sizes = [1 if name == "gradient_scale" else 300_001 for name in prop.list_arguments()]
    given = [random.random(size, np.float32) for size in sizes]
    compiled = implementations(operator)["jit"]
    results = []
    for threads in (1, 2, 3, 4):
        shapes = [(1,)] if operator != "lamb_update" else [(300_001,)] * 3
        blank = [np.zeros(shape, np.float32) for shape in shapes]
        run = forward(compiled, prop, given, blank, threads=threads)
        assert run is not None
        results.append(b"".join(output.tobytes() for output in run.outputs))
    assert len(set(results)) == 1
