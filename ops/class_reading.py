"""Reading of a batch's predictions of classes: the inputs and sums of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PartialShape, Shape
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Int32s, Int64s, Integer
from mxrun.codegen.intrinsics import current_task, reduced_run, share
from mxrun.codegen.jit import inlined, native
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.forward_only import ForwardOnlyImplementation

Array = npt.NDArray[Any]

# Dtypes of labels that the loop reads, with the argument for each.
_LABELS = {"float32": "float32_labels", "int32": "int32_labels", "float64": "float64_labels"}
# Bits of the requested sums, in the order of their rows.
_BEST, _LOG, _LIMITED_LOG = 1, 2, 4
_SUMS = 6
_SUM_BYTES = 8 * _SUMS

# Constant that MXNet's CrossEntropy adds to a probability before the logarithm, and the lower bound
# of the probability in its Perplexity.
_EPSILON = 1e-12
_FLOOR = 1e-10
# Labels of a larger absolute value are not classes: they are read as -_MAX_CLASS, which is none.
_MAX_CLASS = 2.0**53
# Number of elements in which the position of a maximum is searched one by one.
_CHUNK = 256


class ClassReadingParameters(Parameters):
    """Parameters of _read_classes."""

    classes: Annotated[Int32, Field(ge=0)] = Field(
        description="Number of classes; 0: output is the probability of class 1 of two.",
        examples=[10],
    )
    positions: Annotated[Int32, Field(ge=1)] = Field(
        default=1, description="Predictions of a sample: output is [samples, classes, positions]."
    )
    requested: Int32 = Field(
        default=0, description="1: sum of hits; 2: of logarithms; 4: of limited logarithms."
    )
    ignored: Int32 | None = Field(
        default=None, description="Label of predictions that do not count."
    )
    arrays: bool = Field(default=False, description="Whether there are outputs by prediction.")


@register("_read_classes")
class ClassReadingProperty(OperatorProperty[ClassReadingParameters]):
    """sums [3, 2], float64: the sums of weight * value, and of weight, over all predictions.

    The values are 1 for a hit, ln(p + 1e-12) and ln(max(p, 1e-10)), where p is the probability of
    the label; a row that is not requested has the sum 0. The first of equally probable classes is
    the predicted one; of a single probability, of output or label, class 1 is above 0.5. weights
    [rows] are those of the rows of a batch, which have equally many predictions. A prediction of
    weight 0 adds nothing, even if it is NaN.

    arrays: further outputs, [predictions]: labels and best, int64, the classes that are labelled
    and predicted; doubt, float64, NaN if a probability is NaN and 0 otherwise; weights, float64.
    best and doubt are 0 unless hits are requested. No gradient.
    """

    type_string = "_read_classes"
    parameter_type = ClassReadingParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """label, output, weights."""
        return ("label", "output", "weights")

    def list_outputs(self) -> tuple[str, ...]:
        """sums, and by prediction: labels, best, doubt, weights."""
        return ("sums", *(("labels", "best", "doubt", "weights") if self.parameters.arrays else ()))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Set the shape of the sums to [3, 2]; the others have an element for each label.

        The inputs may have any shapes with the right numbers of elements; unknown ones follow from
        the labels, which have a row for each weight.
        """
        label, output, weights = map(_elements, inputs)
        width = max(self.parameters.classes, 1)
        if label is not None and output is not None and label * width != output:
            wanted = f"{label * width} elements"
            raise ShapeContradiction("output", show(inputs[1]), wanted, "label and classes")
        if label is not None and weights is not None and (weights == 0 or label % weights):
            raise ShapeContradiction("weights", show(inputs[2]), "equal rows of labels", "label")
        sums = unify("sums", outputs[0], (3, 2), "three sums")
        arrays = zip(self.list_outputs()[1:], outputs[1:], strict=True)
        count = None if label is None else (label,)
        found = [unify(name, given, count, "label") for name, given in arrays]
        shapes = [*inputs]
        if inputs[0] is not None and label is not None:
            positions = self.parameters.positions
            behind = (positions,) if positions > 1 else ()
            shapes[1] = shapes[1] or (label // positions, width, *behind)
            shapes[2] = shapes[2] or inputs[0][:1]
        return PartialInference(shapes, [sums, *found], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Classes are int64, and everything else that is computed is float64."""
        kinds: list[PartialType] = ["float64", "int64", "int64", "float64", "float64"]
        return inputs, kinds[: len(outputs)]

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * 3

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One comparison per probability."""
        return math.prod(in_shapes[1])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return ClassReading(self.parameters)


def _elements(shape: PartialShape) -> int | None:
    """Return the number of elements of a shape, None if it is not known."""
    if shape is None or None in shape:
        return None
    return math.prod(size or 0 for size in shape)


class ClassReading(Operator):
    """NumPy body."""

    def __init__(self, parameters: ClassReadingParameters) -> None:
        self._parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """Compute everything by prediction, then the sums."""
        label, output, row_weights = call.inputs
        given = self._parameters
        is_binary = given.classes == 0
        shape = (-1, max(given.classes, 1), given.positions)
        chances = output.reshape(shape).transpose(0, 2, 1).reshape(label.size, -1)
        chances = chances.astype(np.float64)
        values = label.reshape(-1).astype(np.float64)
        inside = (values > -_MAX_CLASS) & (values < _MAX_CLASS)
        labels = np.where(inside, values, -_MAX_CLASS).astype(np.int64)
        best = chances.argmax(1)
        if is_binary:
            labels, best = ((each > 0.5).astype(np.int64) for each in (values, chances[:, 0]))
        weights = np.repeat(row_weights.astype(np.float64), label.size // row_weights.size)
        if given.ignored is not None:
            weights[labels == given.ignored] = 0
        every = np.arange(label.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            largest = chances[every, 0 if is_binary else best]
            doubt = largest - largest
            own = chances[every, 0 if is_binary else np.clip(labels, 0, given.classes - 1)]
            if is_binary:
                own = 1 - np.abs(labels - own)
            found = (
                (_BEST, (best == labels) + doubt),
                (_LOG, np.log(own + _EPSILON)),
                (_LIMITED_LOG, np.log(np.where(own < _FLOOR, _FLOOR, own))),
            )
        counts = weights != 0
        total = math.fsum(weights)
        sums = [
            (float(np.sum((weights * value)[counts])) if given.requested & bit else 0.0, total)
            for bit, value in found
        ]
        if given.arrays:
            is_read = given.requested & _BEST
            call.store(sums, labels, best if is_read else 0, doubt if is_read else 0, weights)
        else:
            call.store(sums)


class Reading(Arguments):
    """Arguments of `read_classes_loop`: `count` predictions of `classes` classes.

    The labels [count] have one of three dtypes; the pointers of the other two are None. output
    [samples, classes, positions]; if `classes` is 0, [count]. row_weights: one for `per_row`
    predictions each. has_ignored: whether a prediction whose label is `ignored` has the weight 0.

    labels, best, doubts and weights [count]: written for each prediction, unless None. partial
    [tasks, 3, 2]: the sums of each task.
    """

    requested: Integer
    float32_labels: Float32s
    int32_labels: Int32s
    float64_labels: Float64s
    output: Float32s
    row_weights: Float32s
    count: Integer
    classes: Integer
    positions: Integer
    per_row: Integer
    has_ignored: Integer
    ignored: Integer
    labels: Int64s
    best: Int64s
    doubts: Float64s
    weights: Float64s
    partial: Float64s


@inlined
def label_at(call: Reading, i: int) -> int:
    """Return label i as a class; of a probability label, class 1 above 0.5."""
    if call.float32_labels is not None:
        value = np.float64(call.float32_labels[i])
    elif call.int32_labels is not None:
        value = np.float64(call.int32_labels[i])
    else:
        value = call.float64_labels[i]
    if call.classes == 0:
        return 1 if value > 0.5 else 0
    return int(value if -_MAX_CLASS < value < _MAX_CLASS else -_MAX_CLASS)


@inlined
def best_of(output: Any, first: int, classes: int) -> int:
    """Return the index of the first maximum of a row, or of its first NaN."""
    largest = reduced_run(1, -np.inf, output, first, min(classes, _CHUNK), output[first], 0)
    place = 0
    for start in range(_CHUNK, classes, _CHUNK):
        count = min(classes - start, _CHUNK)
        top = reduced_run(1, -np.inf, output, first + start, count, output[first], 0)
        if largest == largest and not top <= largest:
            largest, place = top, start
    while output[first + place] == output[first + place] and output[first + place] != largest:
        place += 1
    return place


@inlined
def best_apart(output: Any, first: int, classes: int, step: int) -> int:
    """Return what `best_of` returns, of elements that are `step` apart."""
    place = 0
    largest = output[first]
    for index in range(1, classes):
        value = output[first + index * step]
        if largest == largest and not value <= largest:
            largest, place = value, index
    return place


@native
def read_classes_loop(call: Reading) -> None:
    """Compute labels and weights of all predictions, and the requested sums of weight * value."""
    requested, output, classes, positions = (
        call.requested,
        call.output,
        call.classes,
        call.positions,
    )
    is_binary = classes == 0
    total, hits, logarithms, limited = 0.0, 0.0, 0.0, 0.0
    begin, end = share(call.count)
    for i in range(begin, end):
        label = label_at(call, i)
        weight = np.float64(call.row_weights[i // call.per_row])
        if call.has_ignored and label == call.ignored:
            weight = 0.0
        total += weight
        first = i if is_binary else i // positions * classes * positions + i % positions
        best, doubt = 0, 0.0
        if requested & 1:
            if is_binary:
                best = 1 if output[first] > 0.5 else 0
                doubt = np.float64(output[first])
            else:
                if positions == 1:
                    best = best_of(output, first, classes)
                else:
                    best = best_apart(output, first, classes, positions)
                doubt = np.float64(output[first + best * positions])
            doubt -= doubt
            if weight != 0:
                hits += weight * ((1.0 if best == label else 0.0) + doubt)
        if call.labels is not None:
            call.labels[i] = label
        if call.best is not None:
            call.best[i] = best
        if call.doubts is not None:
            call.doubts[i] = doubt
        if call.weights is not None:
            call.weights[i] = weight
        if requested > 1 and weight != 0:
            if is_binary:
                chance = 1 - abs(label - np.float64(output[first]))
            else:
                own = max(0, min(label, classes - 1))
                chance = np.float64(output[first + own * positions])
            if requested & 2:
                logarithms += weight * math.log(chance + _EPSILON)
            if requested & 4:
                limited += weight * math.log(_FLOOR if chance < _FLOOR else chance)
    task, _ = current_task()
    at = task * _SUMS
    for row in range(3):
        call.partial[at + 2 * row + 1] = total
    call.partial[at], call.partial[at + 2], call.partial[at + 4] = hits, logarithms, limited


class Folding(Arguments):
    """Arguments of `fold_sums_loop`: partial [tasks, 3, 2], sums [3, 2]."""

    tasks: Integer
    partial: Float64s
    sums: Float64s


@native
def fold_sums_loop(call: Folding) -> None:
    """sums = the sums of all tasks, added in order."""
    for which in range(_SUMS):
        total = 0.0
        for task in range(call.tasks):
            total += call.partial[task * _SUMS + which]
        call.sums[which] = total


@implement("_read_classes", backend="jit")
class CompiledClassReading(ForwardOnlyImplementation):
    """One pass over the predictions, and one over the sums of its tasks."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare plain float32 outputs and weights, and labels that the loop reads."""
        label, output, weights = request.inputs
        is_read = output.dtype == weights.dtype == "float32" and label.dtype in _LABELS
        if not is_read or OpReqType.ADD in request.requests:
            return None
        given = prop.parameters
        tasks = request.device.tasks_for_elements(output.elements)
        scratch_bytes = tasks * _SUM_BYTES
        labels = {
            name: source(0) if label.dtype == kind else None for kind, name in _LABELS.items()
        }
        requests = (*request.requests, *[OpReqType.NULL] * 4)
        targets = [
            None if each is OpReqType.NULL else target(index) for index, each in enumerate(requests)
        ]
        reading = Reading(
            requested=given.requested,
            output=source(1),
            row_weights=source(2),
            count=label.elements,
            classes=given.classes,
            positions=given.positions,
            per_row=label.elements // weights.elements,
            has_ignored=given.ignored is not None,
            ignored=given.ignored or 0,
            labels=targets[1],
            best=targets[2],
            doubts=targets[3],
            weights=targets[4],
            partial=Scratch(),
            **labels,
        )
        parts = [LoopPart(read_classes_loop, reading, tasks, scratch_bytes)]
        if targets[0] is not None:
            folding = Folding(tasks=tasks, partial=Scratch(), sums=target(0))
            parts.append(LoopPart(fold_sums_loop, folding, 1, scratch_bytes))
        return self.plain_kernel(prop, request, parts)
