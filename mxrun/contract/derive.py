"""Generation of test cases for an operator: parameters, shapes and values from its property."""

from __future__ import annotations

import itertools
import math
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mxrun.base.errors import UserError
from mxrun.base.params import Parameters, check
from mxrun.base.tensor import Shape
from mxrun.contract import call
from mxrun.contract.case import DOUBLE, SINGLE, Case, Extent, exact
from mxrun.contract.interface import describe
from mxrun.contract.loss import WEIGHT
from mxrun.contract.memory import Array
from mxrun.contract.problem import Breach, attempting, enumerated
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty
from mxrun.operator.shape import ShapeContradiction, is_known, require_complete

# Shapes of the data arguments: every rank, then odd and degenerate ones.
RANKS: tuple[Shape, ...] = ((6,), (4, 3), (2, 4, 5), (2, 4, 5, 6), (2, 4, 3, 5, 4))
SIZES: tuple[Shape, ...] = (
    *((1,), (1, 1), (1, 1, 1, 1), (7, 1), (2, 1, 5, 5)),
    *((4, 4), (3, 4, 4), (3, 4, 8, 8), (67, 33)),
)
# Shapes large enough for several tasks: the first valid one is used that gives no tensor with more
# than so many elements, or else the first valid one.
LARGE: tuple[Shape, ...] = (
    *((257, 263), (259, 259), (2, 183, 183), (5, 3, 67, 69)),
    *((41, 43), (70001,)),
)
_MOST_ELEMENTS = 1 << 20
# Preferred number of elements of the case with values of many magnitudes.
_WIDE_ELEMENTS = 1024
# MXNet's names of arguments that training changes; their shapes follow from the others'.
_LEARNED = frozenset({"weight", "bias", "gamma", "beta"})
# Maximum number of further values of a parameter.
_MAX_CHOICES = 6
# Candidate values of a parameter without examples, and how many valid ones are used.
_NUMBERS, _MAX_NUMBERS = (1.5, -0.5, 0.25, 0.75, 3.0), 2

Draw = Callable[[np.random.Generator, Shape], Array]
# Input ranges, tried in order until the operator's outputs are finite.
_DOMAINS: Mapping[str, Draw] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "0.25 to 2": lambda random, shape: random.uniform(0.25, 2, shape),
    "-0.9 to 0.9": lambda random, shape: random.uniform(-0.9, 0.9, shape),
    "1.1 to 3": lambda random, shape: random.uniform(1.1, 3, shape),
    "6 to 40": lambda random, shape: random.uniform(6, 40, shape),
}


def _magnitudes(random: np.random.Generator, shape: Shape) -> Array:
    """Return log-uniform numbers from 0.001 to 30."""
    return 10 ** random.uniform(-3, 1.5, shape)


_WIDE: Mapping[str, Draw] = {
    "wide": lambda random, shape: _magnitudes(random, shape) * random.choice([-1, 1], shape),
    "wide and positive": _magnitudes,
}


def cases(prop: AnyProperty, fixed: Sequence[str] = ()) -> list[Case]:
    """Return cases of all ranks and odd sizes, then cases with other parameter values.

    fixed: parameters that keep their values. The list is empty if no shape of the first argument
    determines all other shapes.
    """
    found = [case for shape in (*RANKS, *SIZES) for case in _case(prop, shape)]
    plain = next(iter(found), None)
    shapes = [case.input_shapes[0] for case in found[:1]] or list(RANKS)
    shapes += [shape for shape in RANKS if shape not in shapes]
    for other in variants(prop, fixed):
        found += _first_case(other, shapes)
    for other in numeric_variants(prop, fixed):
        with attempting(f"generating cases of {describe(other)}"):
            found += [case for case in _first_case(other, shapes) if _is_accepted(case)]
    if plain is None:
        return found
    far = _wide(plain, found)
    if plain.prop.list_state_updates() or call.resources(prop, _first(plain)):
        found += [_evaluated(case) for case in found[:2]]
    large = [replace(case, extent=Extent.LARGE) for case in _first_case(prop, _large(prop))]
    return [*found, *far, *large]


def _first_case(prop: AnyProperty, shapes: Sequence[Shape]) -> list[Case]:
    """Return the case of the first valid shape; none if the parameters are refused."""
    return next(filter(None, (_case(prop, shape) for shape in shapes)), [])


def _large(prop: AnyProperty) -> list[Shape]:
    """Return the shapes of `LARGE`, those that give an enormous tensor last."""

    def is_enormous(sample: Shape) -> bool:
        found = shapes_from(prop, sample)
        shapes = () if found is None else (*found.inputs, *found.outputs)
        return any(math.prod(require_complete(shape)) > _MOST_ELEMENTS for shape in shapes)

    return sorted(LARGE, key=is_enormous)


def _wide(plain: Case, found: Sequence[Case]) -> list[Case]:
    """Return a case of the default parameters with values of many magnitudes and finite outputs.

    Operators with labels have none, because their -log of probability 0 is clamped.
    """
    if plain.prop.label_arguments:
        return []
    same = [case for case in found if case.prop is plain.prop]
    sizes = [sum(math.prod(shape) for shape in case.input_shapes) for case in same]
    case = same[min(range(len(same)), key=lambda i: abs(sizes[i] - _WIDE_ELEMENTS))]
    shapes = [array.shape for array in case.inputs[SINGLE]]
    for label, draw in _WIDE.items():
        name = f"{case.name}, {label}"
        values = _values(case.prop, shapes, draw, name)
        wide = replace(case, name=name, inputs=values, extent=Extent.WIDE)
        if all(_is_finite(wide, dtype) for dtype in values):
            return [wide]
    return []


def numeric_variants(prop: AnyProperty, fixed: Sequence[str]) -> Iterator[AnyProperty]:
    """Yield the property with each number without other examples set to a few valid values."""
    kind = type(prop.parameters)
    given = {name: getattr(prop.parameters, name) for name in prop.parameters.model_fields_set}
    for name, field in kind.model_fields.items():
        now = getattr(prop.parameters, name)
        if name in fixed or any(value != now for value in field.examples or ()):
            continue
        types = {field.annotation, *typing.get_args(field.annotation)}
        numbers: Sequence[float] = ()
        if float in types:
            numbers = [value for value in _NUMBERS if value != now]
        elif int in types and isinstance(now, int):
            numbers = [now + 1]
        changed = (_with(prop, kind, {**given, name: value}) for value in numbers)
        yield from itertools.islice(filter(None, changed), _MAX_NUMBERS)


def variants(prop: AnyProperty, fixed: Sequence[str]) -> Iterator[AnyProperty]:
    """Yield the property with one parameter at a time set to each of its other values."""
    kind = type(prop.parameters)
    given = {name: getattr(prop.parameters, name) for name in prop.parameters.model_fields_set}
    for name, field in kind.model_fields.items():
        if name in fixed:
            continue
        now = getattr(prop.parameters, name)
        others = [*(field.examples or ()), *_choices(field.annotation)]
        others = [value for value in others if value != now or type(value) is not type(now)]
        for value in others[:_MAX_CHOICES]:
            changed = _with(prop, kind, {**given, name: value})
            if changed is not None:
                yield changed


def _with(
    prop: AnyProperty, kind: type[Parameters], values: Mapping[str, object]
) -> AnyProperty | None:
    parameters, _ = check(kind, values)
    try:
        return None if parameters is None else type(prop)(parameters)
    except UserError:
        return None


def _choices(annotation: Any) -> list[object]:
    """Return all values of a type that has few."""
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
    """Return the case outside training."""
    return Case(f"{case.name}, evaluated", case.prop, case.inputs, is_train=False)


def _case(prop: AnyProperty, sample: Shape) -> list[Case]:
    """Return the case in which the first argument has a shape; none if inference fails."""
    inferred = shapes_from(prop, sample)
    if inferred is None:
        return []
    shapes = [require_complete(shape) for shape in (*inferred.inputs, *inferred.auxiliary)]
    first = f"{prop.list_arguments()[0]} {_times(shapes[0])}"
    name = ", ".join(filter(None, (describe(prop), first)))
    cases = [Case(name, prop, _values(prop, shapes, draw, name)) for draw in _DOMAINS.values()]
    for case in cases:
        if _is_finite(case):
            return [case]
    return [replace(cases[0], undefined=enumerated(list(_DOMAINS)))]


def _times(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


def shapes_from(prop: AnyProperty, sample: Shape) -> PartialInference | None:
    """Infer all shapes from `sample`; None if they do not follow.

    `sample` is tried as the shape of the first data argument (neither learned nor a label), then of
    all data arguments, then of the very first argument, unless the property has examples.
    """
    own = prop.example_shapes(sample)
    if own:
        return complete(prop, own)
    names = prop.list_arguments()
    wired = [name for name in names if name not in _LEARNED and name not in prop.label_arguments]
    for chosen in (wired[:1], wired, names[:1]):
        given: PartialShapes = [sample if name in chosen else None for name in names]
        found = complete(prop, given)
        if found is not None:
            return found
    return None


def complete(prop: AnyProperty, inputs: PartialShapes) -> PartialInference | None:
    """Repeat shape inference to a fixpoint; None on a contradiction or if a shape stays unknown."""
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
    """Return arguments and auxiliary states in float32 and float64, with values exact in both."""
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
    """Infer the arguments' types with the first free or float32 one set to `dtype`.

    None for a type that remains free.
    """
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
    """Return random class indices, class probabilities or regression targets."""
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


def _is_finite(case: Case, dtype: str = DOUBLE) -> bool:
    """Return whether the NumPy body gives finite outputs for the case's values."""
    try:
        return _outputs_are_finite(case, dtype)
    except Breach:
        # The prerequisite checks report failures of the call itself.
        return True


def _is_accepted(case: Case) -> bool:
    """Return whether the operator accepts generated parameters; it may refuse them by UserError."""
    try:
        return _outputs_are_finite(case, DOUBLE)
    except Breach as breach:
        return not isinstance(breach.__cause__, UserError)


def _outputs_are_finite(case: Case, dtype: str) -> bool:
    with attempting("forward"), np.errstate(all="ignore"):
        run = call.forward(NUMPY, case.prop, case.inputs[dtype], case.blank_outputs(dtype, 0.0))
    assert run is not None
    return all(bool(np.isfinite(array).all()) for array in run.outputs)
