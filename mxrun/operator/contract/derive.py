"""Cases made up for an operator: parameters, shapes and values, from what it says of itself."""

from __future__ import annotations

import typing
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mxrun.base.params import Parameters, check
from mxrun.base.tensor import Shape
from mxrun.operator.contract import call
from mxrun.operator.contract.case import DOUBLE, SINGLE, Case, exact
from mxrun.operator.contract.interface import describe
from mxrun.operator.contract.loss import WEIGHT
from mxrun.operator.contract.memory import Array
from mxrun.operator.contract.problem import Breach, attempting
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import Inferred, PartialShapes
from mxrun.operator.register import AnyProperty
from mxrun.operator.shape import ShapeContradiction, is_known, known

# Shapes of the first argument, or of all that are alike: every rank, then odd and degenerate ones.
RANKS: tuple[Shape, ...] = ((6,), (4, 3), (2, 4, 5), (2, 4, 5, 6), (2, 4, 3, 5, 4))
SIZES: tuple[Shape, ...] = (
    *((1,), (1, 1), (1, 1, 1, 1), (7, 1), (2, 1, 5, 5)),
    *((4, 4), (3, 4, 4), (3, 4, 8, 8), (67, 33)),
)
# What MXNet calls the arguments that training changes: their shapes follow from the others'.
_LEARNED = frozenset({"weight", "bias", "gamma", "beta"})
# Choices of a parameter that are tried beside the first.
_MOST_CHOICES = 6

Draw = Callable[[np.random.Generator, Shape], Array]
# Where an operator is defined: tried in turn until its outputs are finite.
_DOMAINS: tuple[Draw, ...] = (
    lambda random, shape: random.standard_normal(shape),
    lambda random, shape: random.uniform(0.25, 2, shape),
    lambda random, shape: random.uniform(-0.9, 0.9, shape),
    lambda random, shape: random.uniform(1.1, 3, shape),
)


def cases(prop: AnyProperty, fixed: Sequence[str] = ()) -> list[Case]:
    """The operator over all ranks and odd sizes, then under other choices of its parameters.

    fixed: parameters that stay as they are. Empty where no shape of the first argument gives all.
    """
    found = [case for shape in (*RANKS, *SIZES) for case in _case(prop, shape)]
    plain = next(iter(found), None)
    for other in variants(prop, fixed):
        shapes = [case.input_shapes[0] for case in found[:1]] or list(RANKS)
        shapes += [shape for shape in RANKS if shape not in shapes]
        made = next((case for shape in shapes for case in _case(other, shape)), None)
        if made is not None:
            found.append(made)
    if plain is not None and (
        plain.prop.list_state_updates() or call.resources(prop, _first(plain))
    ):
        found += [_evaluated(case) for case in found[:2]]
    return found


def variants(prop: AnyProperty, fixed: Sequence[str]) -> Iterator[AnyProperty]:
    """The property with one parameter after the other set to each of its other choices."""
    kind = type(prop.parameters)
    given = {name: getattr(prop.parameters, name) for name in prop.parameters.model_fields_set}
    for name, field in kind.model_fields.items():
        if name in fixed:
            continue
        now = getattr(prop.parameters, name)
        others = [*(field.examples or ()), *_choices(field.annotation)]
        others = [value for value in others if value != now or type(value) is not type(now)]
        for value in others[:_MOST_CHOICES]:
            made = _with(prop, kind, {**given, name: value})
            if made is not None:
                yield made


def _with(
    prop: AnyProperty, kind: type[Parameters], values: Mapping[str, object]
) -> AnyProperty | None:
    parameters, _ = check(kind, values)
    return None if parameters is None else type(prop)(parameters)


def _choices(annotation: Any) -> list[object]:
    """All values of a type that has few."""
    if annotation is bool:
        return [False, True]
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return list(arguments)
    if type(None) in arguments:
        return [value for part in arguments if part is not type(None) for value in _choices(part)]
    return []


def _first(case: Case) -> Sequence[Array]:
    return case.inputs[SINGLE][: len(case.arguments)]


def _evaluated(case: Case) -> Case:
    """The case outside of training."""
    return Case(f"{case.name}, evaluated", case.prop, case.inputs, is_train=False)


def _case(prop: AnyProperty, sample: Shape) -> list[Case]:
    """The case in which the first argument has a shape; none where nothing else follows."""
    inferred = shapes_from(prop, sample)
    if inferred is None:
        return []
    shapes = [known(shape) for shape in (*inferred.inputs, *inferred.auxiliary)]
    first = f"{prop.list_arguments()[0]} {_times(shapes[0])}"
    name = ", ".join(filter(None, (describe(prop), first)))
    for draw in _DOMAINS:
        case = Case(name, prop, _values(prop, shapes, draw, name))
        if _is_finite(case):
            return [case]
    return [Case(name, prop, _values(prop, shapes, _DOMAINS[0], name))]


def _times(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


def shapes_from(prop: AnyProperty, sample: Shape) -> Inferred | None:
    """All shapes where the first argument that is not learned has one, or all of those have it.

    Else where the very first has it.
    """
    names = prop.list_arguments()
    wired = [name for name in names if name not in _LEARNED and name not in prop.label_arguments]
    for chosen in (wired[:1], wired, names[:1]):
        given: PartialShapes = [sample if name in chosen else None for name in names]
        found = complete(prop, given)
        if found is not None:
            return found
    return None


def complete(prop: AnyProperty, inputs: PartialShapes) -> Inferred | None:
    """Inference until nothing more follows; None where it contradicts or something is missing."""
    outputs: PartialShapes = [None] * len(prop.list_outputs())
    try:
        for _ in range(len(inputs) + 1):
            found = prop.infer_shape([*inputs], [*outputs])
            inputs, outputs = found.inputs, found.outputs
    except ShapeContradiction:
        return None
    everything = (*found.inputs, *found.outputs, *found.auxiliary)
    return found if all(is_known(shape) for shape in everything) else None


def _values(
    prop: AnyProperty, shapes: Sequence[Shape], draw: Draw, name: str
) -> Mapping[str, tuple[Array, ...]]:
    """Arguments and auxiliary states in both types: numbers that both can hold."""
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    found = {}
    for dtype in (SINGLE, DOUBLE):
        random = np.random.default_rng(zlib.crc32(name.encode()))
        types = _types(prop, dtype)
        found[dtype] = tuple(
            exact(_value(prop, argument, index, shapes, types, draw, random))
            for index, argument in enumerate(names)
        )
    return found


def _types(prop: AnyProperty, dtype: str) -> list[str | None]:
    """The arguments' types where those are floats that may be either; None for what is free."""
    names, outputs = prop.list_arguments(), prop.list_outputs()
    alone, _ = prop.infer_type([None] * len(names), [None] * len(outputs))
    first = next((i for i, one in enumerate(alone) if one is None or one == SINGLE), None)
    given = [dtype if i == first else None for i in range(len(names))]
    types, _ = prop.infer_type([*given], [None] * len(outputs))
    return types


def _value(
    prop: AnyProperty,
    name: str,
    index: int,
    shapes: Sequence[Shape],
    types: Sequence[str | None],
    draw: Draw,
    random: np.random.Generator,
) -> Array:
    shape = shapes[index]
    if index >= len(types):
        return random.uniform(0.5, 2, shape).astype(types[0] or SINGLE)
    dtype = types[index]
    if name == WEIGHT:
        return np.resize([1.0, 0.0, 0.5], shape).astype(dtype or SINGLE)
    if name in prop.label_arguments:
        return _label(prop, shapes[0], shape, dtype, random)
    if dtype is None or np.issubdtype(dtype, np.floating):
        return draw(random, shape).astype(dtype or SINGLE)
    return random.integers(0, 2, shape).astype(dtype)


def _label(
    prop: AnyProperty, data: Shape, shape: Shape, dtype: str | None, random: np.random.Generator
) -> Array:
    """Numbers of classes, or what a regression predicts."""
    regression = prop.regression(data, shape)
    if regression is not None:
        draw = random.random if regression.probabilities else random.standard_normal
        return np.asarray(draw(shape), dtype or SINGLE)
    classes = prop.classification(data, shape)
    if classes is not None and shape == data:
        values = random.random(shape)
        return np.asarray(values / values.sum(axis=1, keepdims=True), SINGLE)
    count = classes.classes if classes else min(2, *data[1:], 2)
    return random.integers(0, count, shape).astype(dtype or "int32")


def _is_finite(case: Case) -> bool:
    """Whether the readable body gives finite outputs on the case's values."""
    try:
        with attempting("forward"), np.errstate(all="ignore"):
            run = call.forward(
                NUMPY, case.prop, case.inputs[DOUBLE], case.blank_outputs(DOUBLE, 0.0)
            )
    except Breach:
        # What is wrong with the call is found, and told, by the first checks.
        return True
    assert run is not None
    return all(bool(np.isfinite(array).all()) for array in run.outputs)
