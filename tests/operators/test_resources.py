"""Random streams and temporary space: requests of operators and their fulfilment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu, executor_for
from operator_harness import RANDOM, STREAM, forward

from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, group, variable
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    OperatorProperty,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.operator.register import create
from mxrun.runtime.random import Stream, key_of

Array = npt.NDArray[Any]
# Enough for three tasks, and no multiple of the four words of a block.
SHAPE = (5, 17, 31, 33)
DROPPED = ("Dropout", {"p": 0.25})
DRAWN = ("LeakyReLU", {"act_type": "rrelu"})
NORMALIZED = ("BatchNorm", {"fix_gamma": False})


def two_of(operator: str, parameters: dict[str, object]) -> Symbol:
    """Two operators on the same data."""
    with fresh_names():
        data = variable("data")
        both = (apply(operator, {"data": data}, parameters, name) for name in ("one", "two"))
        return group(both)


def executor_of(symbol: Symbol, threads: int = 1, implementation: str = "auto") -> Executor:
    """Return an executor with positive data, so that each element shows its operator's effect."""
    inputs = {"data": TensorSpec(SHAPE)}
    request = CompileRequest(inputs, device=cpu(threads), implementation=implementation)
    executor = executor_for(compile_plan(symbol, request))
    for block in executor.plan.pinned:
        tensor = executor.tensor(block.name)
        random = np.random.default_rng(3)
        if tensor.spec.dtype == "float32":
            tensor.write(random.uniform(0.5, 2, tensor.spec.shape))
    return executor


def outputs(executor: Executor, phase: str, seed: int = 7, step: int = 0) -> list[Array]:
    """Return copies of the two results of one step."""
    if RANDOM_STATE in executor.plan.specs:
        executor.tensor(RANDOM_STATE).write((key_of(str(seed)), step, 0))
    executor.run(phase)
    return [executor.result(phase, f"{name}_output").read() for name in ("one", "two")]


def equal(left: Sequence[Array], right: Sequence[Array]) -> list[bool]:
    return [a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize(("operator", "parameters"), [DROPPED, ("Dropout", {"axes": (2,)})])
def test_R1_one_seed_gives_the_same_masks_whoever_draws_them(
    operator: str, parameters: dict[str, object]
) -> None:
    symbol = two_of(operator, parameters)
    first = outputs(executor_of(symbol), TRAIN)
    for threads in (1, 2, 3):
        assert all(equal(outputs(executor_of(symbol, threads), TRAIN), first))
    assert all(equal(outputs(executor_of(symbol, implementation="numpy"), TRAIN), first))


@pytest.mark.parametrize(("operator", "parameters"), [DROPPED, DRAWN])
def test_R1_operators_steps_and_seeds_have_streams_of_their_own(
    operator: str, parameters: dict[str, object]
) -> None:
    executor = executor_of(two_of(operator, parameters))
    if operator == "LeakyReLU":
        data = executor.tensor("data")
        data.write(-data.read())
    one, two = outputs(executor, TRAIN)
    assert not np.array_equal(one, two)
    assert equal(outputs(executor, TRAIN), [one, two]) == [True, True]
    assert equal(outputs(executor, TRAIN, step=1), [one, two]) == [False, False]
    assert equal(outputs(executor, TRAIN, seed=8), [one, two]) == [False, False]


@pytest.mark.parametrize(("operator", "parameters"), [DROPPED, NORMALIZED])
def test_O2_training_and_evaluation_differ_and_evaluation_repeats_itself(
    operator: str, parameters: dict[str, object]
) -> None:
    executor = executor_of(two_of(operator, parameters))
    trained = outputs(executor, TRAIN)
    evaluated = outputs(executor, EVALUATE, step=1)
    assert equal(evaluated, trained) == [False, False]
    assert all(equal(outputs(executor, EVALUATE, step=2), evaluated))
    if operator == "Dropout":
        np.testing.assert_array_equal(evaluated[0], executor.tensor("data").values())


def test_dropout_costs_nothing_in_evaluation() -> None:
    with fresh_names():
        data = apply("Activation", {"data": variable("data")}, {"act_type": "relu"}, "relu")
        head = apply("Dropout", {"data": data}, {}, "one")
    executor = executor_of(head)
    assert set(executor.programs[EVALUATE].names) == {"relu"}


@pytest.mark.parametrize("p", [2.0**-40, 0.1, 0.5, 0.999, 1 - 2.0**-40])
def test_dropout_keeps_its_share_and_the_expectation(p: float) -> None:
    symbol = two_of("Dropout", {"p": p})
    executor = executor_of(symbol, threads=2)
    executor.tensor("data").write(1)
    kept = np.concatenate([outputs(executor, TRAIN, step=step) for step in range(10)])
    values = np.unique(kept)
    assert set(values) <= {np.float32(0), np.float32(1 / (1 - p))}
    deviation = np.sqrt(p * (1 - p) / kept.size)
    assert abs((kept != 0).mean() - (1 - p)) <= 4 * deviation + 1e-9


@pytest.mark.parametrize(
    ("p", "limit", "scale"),
    [
        (0.0, 0xFFFFFFFF, 1.0),
        (2.0**-40, 0xFFFFFFFF, 1 / (1 - 2.0**-40)),
        (0.25, 0xBFFFFFFF, 4 / 3),
        (0.5, 0x7FFFFFFF, 2.0),
        (1 - 2.0**-31, 1, 2.0**31),
        (1 - 2.0**-50, 0, 2.0**50),
    ],
)
def test_dropout_keeps_words_up_to_an_exact_limit(p: float, limit: int, scale: float) -> None:
    parameters = create("Dropout", {"p": p}).parameters
    assert (parameters.limit, parameters.scale) == (limit, scale)


class ResourcefulParameters(Parameters):
    """None."""


class Resourceful(Operator):
    """output = data + the unit of each random word; records the bytes of its temporary space."""

    def __init__(self, kinds: tuple[ResourceKind, ...]) -> None:
        self.kinds = kinds
        self.nbytes = 0

    def forward(self, call: ForwardCall) -> None:
        total = call.inputs.data.astype("float64")
        for index, kind in enumerate(self.kinds):
            if kind is ResourceKind.TEMP_SPACE:
                space = call.space(index)
                self.nbytes = space.nbytes
                space[:] = 1
                with pytest.raises(TypeError, match="not a random stream"):
                    call.random(index)
            else:
                total += call.random(index).bits(total.size).reshape(total.shape) / 2**32
                with pytest.raises(TypeError, match="not temporary space"):
                    call.space(index)
        call.store(output=total)


class ResourcefulProperty(OperatorProperty[ResourcefulParameters]):
    """Requests resources of the given kinds, in their order."""

    type_string = "resourceful"
    parameter_type = ResourcefulParameters

    def __init__(self, *kinds: ResourceKind) -> None:
        super().__init__(ResourcefulParameters())
        self.body = Resourceful(kinds)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        size = inputs[0].nbytes
        return [
            ResourceRequest(kind, size if kind is ResourceKind.TEMP_SPACE else 0)
            for kind in self.body.kinds
        ]

    def create_operator(self) -> Operator:
        return self.body


TEMP_SPACE, RANDOM_NUMBERS = ResourceKind.TEMP_SPACE, ResourceKind.RANDOM


@pytest.mark.parametrize(
    "kinds",
    [(TEMP_SPACE,), (RANDOM_NUMBERS,), (RANDOM_NUMBERS, TEMP_SPACE), (TEMP_SPACE, RANDOM_NUMBERS)],
)
def test_R3_each_request_is_answered_at_its_own_place(kinds: tuple[ResourceKind, ...]) -> None:
    prop = ResourcefulProperty(*kinds)
    data = np.zeros((3, 5), "float32")
    run = forward(NUMPY, prop, [data], [np.empty_like(data)])
    assert run is not None
    expected = np.zeros(15)
    if RANDOM_NUMBERS in kinds:
        expected = Stream(RANDOM[0] ^ STREAM, RANDOM[1]).bits(15) / 2**32
    np.testing.assert_array_equal(run.outputs[0].ravel(), expected.astype("float32"))
    assert prop.body.nbytes == (data.nbytes if TEMP_SPACE in kinds else 0)
