"""SequenceMask, SequenceLast and SequenceReverse: batches of sequences of different lengths."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import (
    InPlaceProperty,
    PartialInference,
    PartialShapes,
    SelectionProperty,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify

T = TypeVar("T")
Array = npt.NDArray[Any]

_MIN_RANK = 2


class SequenceParameters(Parameters):
    """Parameters of SequenceLast and SequenceReverse (MXNet's)."""

    use_sequence_length: bool = Field(
        default=False,
        description="Adds the argument sequence_length; otherwise all sequences have full length.",
    )
    axis: Annotated[int, Field(ge=0, le=1)] = Field(
        default=0,
        description="Axis of the steps; the other one of 0 and 1 is the batch.",
        examples=[0, 1],
    )


class SequenceMaskParameters(SequenceParameters):
    """Parameters of SequenceMask (MXNet's)."""

    value: Float32 = Field(default=0.0, description="Value of the steps after a sequence's end.")


class SequenceProperty(SelectionProperty[SequenceParameters]):
    """Common part: data [steps, batch, ...], or [batch, steps, ...] with axis 1; lengths [batch].

    Lengths default to int32; a fractional length is truncated.
    """

    parameter_type = SequenceParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data, and sequence_length with use_sequence_length."""
        return ("data", "sequence_length") if self.parameters.use_sequence_length else ("data",)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and data's batch with the lengths."""
        data, *lengths = inputs
        steps = self.parameters.axis
        data = self.of_output(data, outputs[0])
        if data is None:
            return PartialInference([data, *lengths], [outputs[0]], [])
        if len(data) < _MIN_RANK:
            raise ShapeContradiction("data", show(data), "at least two axes", "steps and batch")
        batch = data[1 - steps]
        if lengths:
            (batch,) = unify("sequence_length", lengths[0], (batch,), "data's batch")
        first = (data[0], batch) if steps == 0 else (batch, data[1])
        data = (*first, *data[2:])
        each: list[Dimensions] = [(batch,)] * len(lengths)
        return PartialInference([data, *each], [self.output_of(data)], [])

    def of_output(self, data: Dimensions | None, output: Dimensions | None) -> Dimensions | None:
        """Complete data's shape by the output's."""
        return unify("data", data, output, "output")

    def output_of(self, data: Dimensions) -> Dimensions:
        """Return the output's shape."""
        return data


@register("SequenceMask")
class SequenceMaskProperty(InPlaceProperty[SequenceParameters], SequenceProperty):
    """output = data where step < length, else value.

    data, output [steps, batch, ...], or [batch, steps, ...] with axis 1; sequence_length [batch],
    with use_sequence_length only, without which nothing is masked. The gradient of data is the
    output's gradient before the end, else 0; lengths have a zero gradient. Backward reads the
    output's gradient and sequence_length.
    """

    type_string = "SequenceMask"
    parameter_type = SequenceMaskParameters

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SequenceMask(self.parameters)


@register("_sequence_hold")
class SequenceHoldProperty(SequenceProperty):
    """output = data where step < length, then data's step length - 1.

    Steps after the end have values that a layer expects, where 0 may have no finite result. Those
    of a sequence without steps are 0, and so are integers after the end, such as further lengths.
    data, output [steps, batch, ...], or [batch, steps, ...] with axis 1; sequence_length [batch].
    The gradient of data is the output's gradient before the end, else 0: no result may depend on
    steps after it. Backward reads the output's gradient and sequence_length.
    """

    type_string = "_sequence_hold"
    is_internal = True
    nonstandard_gradient = "That of steps after the end is left out: they change no result."

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SequenceHold(self.parameters)


@register("SequenceLast")
class SequenceLastProperty(SequenceProperty):
    """output = data's step length - 1 of each sequence, or the last step.

    data [steps, batch, ...], or [batch, steps, ...] with axis 1; output [batch, ...];
    sequence_length [batch], with use_sequence_length only. A length beyond 1 to steps counts as the
    nearest one (MXNet 1.9.1 reads other memory for it). The gradient of data is the output's
    gradient at that step, else 0; lengths have a zero gradient. Backward reads the output's
    gradient and sequence_length.
    """

    type_string = "SequenceLast"

    def of_output(self, data: Dimensions | None, output: Dimensions | None) -> Dimensions | None:
        """Complete the axes without the steps."""
        if output is None or not output:
            return data
        batch, *rest = output
        first = (None, batch) if self.parameters.axis == 0 else (batch, None)
        known: Dimensions = (*first, *rest)
        completed: Dimensions = unify("data", data, known, "output")
        return completed

    def output_of(self, data: Dimensions) -> Dimensions:
        """Return data's shape without the steps."""
        return (data[1 - self.parameters.axis], *data[2:])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SequenceLast(self.parameters)


@register("SequenceReverse")
class SequenceReverseProperty(SequenceProperty):
    """output = data with the first `length` steps of each sequence in reverse order.

    data, output [steps, batch, ...], or [batch, steps, ...] with axis 1 (which MXNet 1.9.1 lacks);
    sequence_length [batch], with use_sequence_length only; without it, all steps are reversed. The
    gradient of data is the output's gradient in the same order; lengths have a zero gradient.
    Backward reads the output's gradient and sequence_length.
    """

    type_string = "SequenceReverse"

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SequenceReverse(self.parameters)


class SequenceOperator(Operator):
    """NumPy body; `steps_first` moves the steps to axis 0 without a copy."""

    def __init__(self, parameters: SequenceParameters) -> None:
        self.parameters, self.axis = parameters, parameters.axis

    def steps_first(self, data: Array) -> Array:
        """Return a view [steps, batch, ...]."""
        return data.swapaxes(0, 1) if self.axis == 1 else data

    def lengths(self, call: OperatorCall, shape: Shape) -> Array:
        """Return the int64 lengths of all sequences, not below 0 or above the number of steps."""
        steps, batch = shape[self.axis], shape[1 - self.axis]
        if not self.parameters.use_sequence_length:
            return np.full(batch, steps)
        lengths: Array = np.trunc(call.inputs.sequence_length).astype(np.int64).clip(0, steps)
        return lengths


class SequenceMask(SequenceOperator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = data before the end, else value."""
        assert isinstance(self.parameters, SequenceMaskParameters)
        call.store(output=self._masked(call, call.inputs.data, self.parameters.value))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's before the end, else 0."""
        call.store(data=self._masked(call, call.output_gradients.output, 0.0))

    def _masked(self, call: OperatorCall, data: Array, value: float) -> Array:
        steps = self.steps_first(data)
        lengths = self.lengths(call, data.shape)
        valid = np.arange(len(steps))[:, None] < lengths
        valid = valid.reshape(valid.shape + (1,) * (data.ndim - _MIN_RANK))
        return self.steps_first(np.where(valid, steps, steps.dtype.type(value)))


class SequenceHold(SequenceMask):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = data before the end, then the last step."""
        data = call.inputs.data
        if np.issubdtype(data.dtype, np.integer):
            call.store(output=self._masked(call, data, 0.0))
            return
        steps, lengths = self.steps_first(data), self.lengths(call, data.shape)
        places = np.minimum(np.arange(len(steps))[:, None], np.maximum(lengths - 1, 0))
        held = steps[places, np.arange(len(lengths))]
        # A sequence without steps has none to hold.
        held[:, lengths == 0] = 0
        call.store(output=self.steps_first(held))


class SequenceLast(SequenceOperator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = the last step of each sequence."""
        data = call.inputs.data
        call.store(output=self.steps_first(data)[self._places(call, data.shape)])

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's at the last step, else 0."""
        gradient = np.zeros_like(call.input_gradients.data)
        places = self._places(call, gradient.shape)
        self.steps_first(gradient)[places] = call.output_gradients.output
        call.store(data=gradient)

    def _places(self, call: OperatorCall, shape: Shape) -> tuple[Array, Array]:
        lengths = self.lengths(call, shape)
        return np.maximum(lengths - 1, 0), np.arange(len(lengths))


class SequenceReverse(SequenceOperator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = data in reverse order."""
        call.store(output=self._reversed(call, call.inputs.data))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's in reverse order."""
        call.store(data=self._reversed(call, call.output_gradients.output))

    def _reversed(self, call: OperatorCall, data: Array) -> Array:
        steps = self.steps_first(data)
        lengths = self.lengths(call, data.shape)
        numbers = np.arange(len(steps))[:, None]
        order = np.where(numbers < lengths, lengths - 1 - numbers, numbers)
        return self.steps_first(steps[order, np.arange(len(lengths))])
