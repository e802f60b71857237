"""Initial values: MXNet's scales and name rules; they depend on seed and name only."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from commands import python_output
from pydantic import ValidationError

from mxrun.base.errors import UserError
from mxrun.runtime import random
from mxrun.train.initializer import (
    CHUNK,
    INITIALIZERS,
    ConstantInitializer,
    Initializer,
    LSTMBias,
    Msra,
    Normal,
    Uniform,
    Xavier,
    initial_value,
    initialise,
    initializer_for,
)

OIHW = (48, 32, 3, 5)
FAN_IN, FAN_OUT = 32 * 15, 48 * 15
FACTORS = {"avg": (FAN_IN + FAN_OUT) / 2, "in": FAN_IN, "out": FAN_OUT}
# For 23,040 values, the sample deviation is within 3 % of the true one, the mean within 4 %.
TOLERANCE = 0.03


@pytest.mark.parametrize("factor_type", FACTORS)
def test_xavier_uniform_has_glorots_bound(factor_type: str) -> None:
    rule = INITIALIZERS.get("xavier").model_validate({"factor_type": factor_type})
    values = initial_value(rule, "conv1_weight", OIHW, seed=3)
    bound = math.sqrt(3 / FACTORS[factor_type])
    assert values.dtype == np.float32
    assert values.shape == OIHW
    assert 0.999 * bound < np.abs(values).max() <= bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=TOLERANCE)
    assert abs(values.mean()) < TOLERANCE * bound


@pytest.mark.parametrize("factor_type", FACTORS)
def test_xavier_gaussian_has_that_deviation(factor_type: str) -> None:
    rule = INITIALIZERS.get("xavier").model_validate(
        {"factor_type": factor_type, "rnd_type": "gaussian", "magnitude": 2.0}
    )
    values = initial_value(rule, "conv1_weight", OIHW, seed=3)
    deviation = math.sqrt(2 / FACTORS[factor_type])
    assert values.std() == pytest.approx(deviation, rel=TOLERANCE)
    assert np.abs(values).max() > 3 * deviation


@pytest.mark.parametrize("slope", [0.0, 0.25, 1.0])
def test_msra_has_hes_deviation(slope: float) -> None:
    values = initial_value(Msra(slope=slope), "fc_weight", (160, 150), seed=0)
    deviation = math.sqrt(2 / (1 + slope**2) / 155)
    assert values.std() == pytest.approx(deviation, rel=TOLERANCE)


def test_a_dense_weight_has_one_position() -> None:
    values = initial_value(Xavier(factor_type="in"), "fc_weight", (300, 200), seed=0)
    assert np.abs(values).max() == pytest.approx(math.sqrt(3 / 200), rel=1e-3)


def test_defaults_are_mxnets() -> None:
    assert (Xavier().rnd_type, Xavier().factor_type, Xavier().magnitude) == ("uniform", "avg", 3.0)
    assert (Msra().factor_type, Msra().slope) == ("avg", 0.25)
    assert (Normal().sigma, Uniform().scale, ConstantInitializer().value) == (0.01, 0.07, 0.0)
    assert set(INITIALIZERS) == {"xavier", "msra", "normal", "uniform", "constant", "lstm_bias"}


def test_normal_uniform_and_constant() -> None:
    normal = initial_value(Normal(sigma=0.5), "a_weight", (20000,), seed=1)
    assert normal.std() == pytest.approx(0.5, rel=TOLERANCE)
    uniform = initial_value(Uniform(scale=0.2), "a_weight", (20000,), seed=1)
    assert -0.2 <= uniform.min() < -0.199
    assert 0.199 < uniform.max() <= 0.2
    constant = initial_value(ConstantInitializer(value=-1.5), "a_weight", (3, 2), seed=1)
    assert constant.tolist() == [[-1.5, -1.5]] * 3


def test_values_depend_on_seed_and_name_alone() -> None:
    first = initial_value(Xavier(), "fc1_weight", (4, 5), seed=7)
    assert np.array_equal(first, initial_value(Xavier(), "fc1_weight", (4, 5), seed=7))
    assert not np.array_equal(first, initial_value(Xavier(), "fc2_weight", (4, 5), seed=7))
    assert not np.array_equal(first, initial_value(Xavier(), "fc1_weight", (4, 5), seed=8))


def test_values_are_the_same_in_another_process() -> None:
    script = (
        "from mxrun.train.initializer import Xavier, initial_value;"
        "print(initial_value(Xavier(), 'fc1_weight', (4, 5), 7).tobytes().hex())"
    )
    printed = python_output("-c", script).strip()
    assert printed == initial_value(Xavier(), "fc1_weight", (4, 5), 7).tobytes().hex()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fc1_bias", 0.0),
        ("bn_beta", 0.0),
        ("bn_moving_mean", 0.0),
        ("bn_gamma", 1.0),
        ("block/bn_moving_var", 1.0),
    ],
)
def test_names_decide_as_in_mxnet(name: str, value: float) -> None:
    assert initializer_for(name, Xavier()) == ConstantInitializer(value=value)


def test_weights_and_other_names_take_the_default() -> None:
    assert initializer_for("fc1_weight", Msra()) == Msra()
    assert initializer_for("table", Msra()) == Msra()


def test_a_variables_own_rule_wins_over_its_name() -> None:
    assert initializer_for(
        "fc1_bias", Xavier(), ConstantInitializer(value=2.0)
    ) == ConstantInitializer(value=2.0)


PARTS = {"l0_i2h_weight": (8, 3), "l0_h2h_weight": (8, 2), "l0_i2h_bias": (8,), "l0_h2h_bias": (8,)}


def test_every_part_of_a_packed_vector_has_its_own_values() -> None:
    rule = initializer_for("rnn_parameters", Xavier(), None, PARTS)
    values = initial_value(rule, "rnn_parameters", (56,), seed=3)
    first, second = values[:24], values[24:40]
    assert 0.6 < np.abs(first).max() < math.sqrt(3 / 5.5)
    assert np.abs(first).max() < np.abs(second).max() < math.sqrt(3 / 5)
    assert not values[40:].any()


def test_lstm_bias_is_1_for_the_forget_gate_of_the_input() -> None:
    rule = initializer_for("rnn_parameters", Xavier(), LSTMBias(), PARTS)
    values = initial_value(rule, "rnn_parameters", (56,), seed=3)
    usual = initializer_for("rnn_parameters", Xavier(), None, PARTS)
    assert np.array_equal(values[:40], initial_value(usual, "rnn_parameters", (56,), seed=3)[:40])
    assert values[40:].tolist() == [0, 0, 1, 1, 0, 0, 0, 0] + [0] * 8
    alone = initial_value(LSTMBias(forget_bias=0.5), "lstm_i2h_bias", (4,), seed=0)
    assert alone.tolist() == [0, 0.5, 0, 0]
    with pytest.raises(UserError, match="four gates"):
        initial_value(LSTMBias(), "lstm_i2h_bias", (6,), seed=0)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_a_shape_without_fans_is_the_users_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"'scale': .*fans") as caught:
        initial_value(Xavier(), "scale", shape, seed=0)
    assert str(list(shape)) in str(caught.value)


def test_unknown_and_bad_parameters_are_refused() -> None:
    with pytest.raises(UserError, match="xavier"):
        INITIALIZERS.get("xavir").model_validate({})
    with pytest.raises(ValidationError):
        INITIALIZERS.get("xavier").model_validate({"magnitude": -1.0})


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000, 4097])
def test_draws_in_pieces_are_those_of_one_draw(count: int) -> None:
    for most in (1, 3, 8, 64, 513):
        if most * 600 < count:
            continue
        normal = np.full(count, np.nan)
        for first, values in random.normal_chunks(5, "fc1_weight", count, most):
            assert len(values) <= most
            normal[first : first + len(values)] = values
        assert normal.tobytes() == random.normal(5, "fc1_weight", (count,)).tobytes()
        parts = [
            random.uniform(5, "fc1_weight", (min(most, count - first),), first)
            for first in range(0, count, most)
        ]
        whole = random.uniform(5, "fc1_weight", (count,))
        assert b"".join(part.tobytes() for part in parts) == whole.tobytes()


def test_a_parameter_of_many_pieces_is_what_one_draw_gives() -> None:
    shape = (3, CHUNK - 5)
    sigma = math.sqrt(3 / ((shape[0] + shape[1]) / 2))
    at_once = random.normal(7, "initializer/fc1_weight", shape) * sigma
    drawn = initial_value(Xavier(rnd_type="gaussian"), "fc1_weight", shape, seed=7)
    assert drawn.tobytes() == at_once.astype(np.float32).tobytes()


@pytest.mark.parametrize(
    "rule", [Xavier(), Xavier(rnd_type="gaussian"), ConstantInitializer(value=2.0)]
)
def test_initialising_takes_little_memory_beside_the_parameter(rule: Initializer) -> None:
    target = np.zeros((32, 2 * CHUNK), np.float32)
    tracemalloc.start()
    try:
        initialise(target, rule, "fc1_weight", seed=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 8 * CHUNK < target.nbytes
    assert target.any(axis=1).all()
