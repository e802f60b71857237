"""Updates of optimizers: the forms that follow from one scalar function, and its restrictions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from executors import cpu
from launches import run
from pydantic import Field

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import ForwardRequest, OpReqType
from mxrun.operator.optimizer import OPTIMIZERS, Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.register import OPERATORS, create, implementations
from mxrun.operator.update_map import STEP_NUMBERS

library.load()
UPDATES = [name for name in OPERATORS if issubclass(OPERATORS.get(name), OptimizerProperty)]
# Parameters without a default, and those whose default makes a term vanish.
MORE = {"eta": 0.7, "momentum": 0.9, "wd_lh": 0.1, "clip_weights": 2.0, "wd": 0.05}


def property_of(name: str) -> Any:
    fields = OPERATORS.get(name).parameter_type.model_fields
    given = {key: value for key, value in MORE.items() if key in fields}
    return create(name, {"lr": 0.1, "clip_gradient": 0.8, "scheduled": True, **given})


def operands_of(prop: Any, count: int) -> dict[str, Any]:
    random = np.random.default_rng(count)
    tensors = {name: random.standard_normal(count).astype(np.float32) for name in prop.tensors}
    for name in {"var", "n", "history"} & {*tensors}:
        tensors[name] = np.abs(tensors[name]) + 1
    numbers = {
        name: np.array([value], np.float32)
        for name, value in zip(STEP_NUMBERS, (0.5, 0.25, 0.1, 0.001), strict=True)
    }
    return {**tensors, **numbers}


@pytest.mark.parametrize("name", [name for name in UPDATES if name != "lamb_update"])
def test_bfloat16_tensors_are_rounded_results_of_float32(name: str) -> None:
    prop, low = property_of(name), ml_dtypes.bfloat16
    operands = operands_of(prop, 77)
    tensors = [operands[key].astype(low) for key in prop.tensors]
    rounded = dict(zip(prop.tensors, (each.astype(np.float32) for each in tensors), strict=True))
    given = {**operands, **rounded, "gradient_scale": np.ones(1, "f4")}
    expected = prop.update_map.evaluate(given, prop.parameters)
    schedule = np.array([0.25, 0.1, 0.001], np.float32)
    inputs = [*tensors, schedule]
    specs = [TensorSpec(each.shape, str(each.dtype)) for each in inputs]
    outputs = [tensors[old] for old in prop.list_mutated_inputs()]
    request = ForwardRequest(
        tuple(specs), (specs[0],) * len(outputs), (OpReqType.WRITE,) * len(outputs), True, cpu()
    )
    kernel = implementations(name)["jit"].prepare_forward(prop, request)
    assert kernel is not None
    run(kernel, inputs, outputs)
    for found, value in zip(outputs, expected, strict=True):
        assert found.tobytes() == value.astype(low).tobytes()


def ignores_the_rate(weight: Any, grad: Any, mom: Any) -> Any:
    return weight - grad, mom


def drops_the_rate(weight: Any, grad: Any, mom: Any, rate: Any) -> Any:
    return weight - grad, mom


def misspells_a_state(weight: Any, grad: Any, momm: Any, rate: Any) -> Any:
    return weight - grad * rate, momm


def forgets_the_state(weight: Any, grad: Any, mom: Any, rate: Any) -> Any:
    return weight - (grad + mom) * rate


def returns_nothing(weight: Any, grad: Any, mom: Any, rate: Any) -> Any:
    pass


def branches(weight: Any, grad: Any, mom: Any, rate: Any) -> Any:
    return weight - (grad if grad > 0 else mom) * rate, mom


def calls_numpy(weight: Any, grad: Any, mom: Any, rate: Any) -> Any:
    return weight - np.sign(grad) * rate, mom


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (ignores_the_rate, ["ignores the learning rate", "argument `rate`"]),
        (drops_the_rate, ["ignores the learning rate", "argument `rate`"]),
        (misspells_a_state, ["gets momm", "weight, grad, mom, rate", "did you mean 'mom'"]),
        (forgets_the_state, ["returns 1 values", "the new weight, mom"]),
        (returns_nothing, ["returns_nothing returns NoneType"]),
        (branches, ["cannot branch", "where(c, x, y)"]),
        (calls_numpy, ["numpy.sign", "from mxrun.operator.scalar import sign"]),
    ],
)
def test_an_update_that_cannot_work_is_refused_at_its_line(function: Any, words: list[str]) -> None:
    class Refused(OptimizerProperty):
        """Refused."""

        type_string = "refused_update"
        parameter_type = UpdateParameters
        states = ("mom",)
        update = staticmethod(function)

    with pytest.raises(UserError) as refused:
        register_update("refused_update")(Refused)
    text, first = str(refused.value), function.__code__.co_firstlineno
    assert any(f"{__file__}:{line}" in text for line in (first, first + 1)), text
    assert all(word in text for word in words), text
    assert "refused_update" not in OPERATORS


class TextParameters(UpdateParameters):
    """Parameters with one that is no number."""

    mode: str = Field("a", description="No number.")


class PlainParameters(Parameters):
    """Parameters without those of every update."""

    lr: float = Field(description="Learning rate.")


def reads_the_mode(weight: Any, grad: Any, rate: Any, mode: Any) -> Any:
    return weight - grad * rate * mode


def descends(weight: Any, grad: Any, rate: Any) -> Any:
    return weight - grad * rate


def descends_with(weight: Any, grad: Any, rate: Any, wd: Any) -> Any:
    return weight - grad * rate, wd


@pytest.mark.parametrize(
    ("function", "parameters", "own_states", "words"),
    [
        (reads_the_mode, TextParameters, (), ["'mode', which is not a number"]),
        (descends, PlainParameters, (), ["subclass of UpdateParameters", "PlainParameters"]),
        (descends_with, UpdateParameters, ("wd",), ["state 'wd'", "taken"]),
        (descends_with, UpdateParameters, ("rate",), ["state 'rate'", "taken"]),
        (descends_with, UpdateParameters, ("mom", "mom"), ["state 'mom'", "taken"]),
    ],
)
def test_states_and_parameters_that_cannot_work_are_refused(
    function: Any, parameters: Any, own_states: tuple[str, ...], words: list[str]
) -> None:
    class Refused(OptimizerProperty):
        """Refused."""

        type_string = "refused_update"
        parameter_type = parameters
        states = own_states
        update = staticmethod(function)

    with pytest.raises(UserError) as refused:
        register_update("refused_update")(Refused)
    text = str(refused.value)
    assert f"{__file__}:{function.__code__.co_firstlineno}" in text
    assert all(word in text for word in words), text


def test_an_optimizer_without_a_fitting_operator_is_refused() -> None:
    class Lost(Optimizer):
        """Its operator does not exist."""

        update = "lost_update"

    class Other(Optimizer):
        """Its operator has other parameters."""

        update = "sgd_mom_update"
        momentun: float = Field(0.9, description="A misspelt name.")

    class Rectified(Optimizer):
        """Its operator is no update."""

        update = "relu"

    with pytest.raises(UserError, match="Rectified has no update operator"):
        register_optimizer("rectified")(Rectified)
    with pytest.raises(UserError, match=r"(?s)Lost has no update operator.*lost_update"):
        register_optimizer("lost")(Lost)
    with pytest.raises(UserError, match=r"(?s)sgd_mom_update does not take: momentun.*'momentum'"):
        register_optimizer("other")(Other)
    assert not {"lost", "other"} & {*OPTIMIZERS}
