"""Properties and NumPy bodies of simple operators, derived from their registrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    Precision,
    ResourceKind,
    ResourceRequest,
    same_shape,
)
from mxrun.operator.shape import is_known, require_complete, unify
from mxrun.operator.simple_entry import (
    Array,
    Formula,
    Inplace,
    Reads,
    SimpleEntry,
    entry_error,
)

T = TypeVar("T")
P = TypeVar("P", bound=Parameters)


class SimpleProperty(OperatorProperty[P]):
    """Operator of one or two inputs and one output that is defined by a SimpleEntry.

    An operator whose function depends on a parameter overrides `entry` to select one.
    """

    family = OperatorFamily.ELEMENTWISE
    reads_only_data = True
    precision = Precision.INHERIT

    @property
    def entry(self) -> SimpleEntry:
        """Functions and registration data of the operator."""
        raise NotImplementedError

    def list_arguments(self) -> tuple[str, ...]:
        """Names of forward's tensors."""
        return self.entry.arguments

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes, or apply the shape function once the input shapes are complete."""
        shape_of = self.entry.shape
        if shape_of is None:
            names = (*self.entry.arguments, "output")
            *inputs, output = same_shape(names, [*inputs, *outputs], "elementwise")
            return PartialInference(inputs, [output], [])
        if not all(map(is_known, inputs)):
            return PartialInference(inputs, outputs, [])
        shape = shape_of(self.parameters, *map(require_complete, inputs))
        if not _is_shape(shape):
            problem = f"the shape function of {self.type_string} returns {shape!r}"
            raise entry_error(shape_of, problem, "a tuple of sizes, which are integers from 0")
        output = unify("output", outputs[0], tuple(map(int, shape)), "the shape function")
        return PartialInference(inputs, [output], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """The inputs', unless a shape function says that the output has another shape."""
        return shared_axis(sequences.axes) if self.entry.shape is None else None

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """COMPUTES for each input with a gradient function, else the registered kind."""
        return tuple(
            GradientKind.COMPUTES if isinstance(gradient, Formula) else gradient
            for gradient in self.entry.gradients
        )

    def list_passed_gradients(self) -> dict[int, int]:
        """Inputs whose gradient formula is out_grad itself."""
        return {
            index: 0
            for index, gradient in enumerate(self.entry.gradients)
            if isinstance(gradient, Formula) and gradient.is_map and gradient.passes_first
        }

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the tensors that the gradients read; empty if none is computed."""
        formulas = self.entry.computed
        if not formulas:
            return []
        gradient, *tensors = select_inputs(self.entry.reads, out_grad[0], in_data, out_data[0])
        reads = zip(*(formula.reads[1:] for formula in formulas), strict=True)
        return [gradient, *(each for each, read in zip(tensors, reads, strict=True) if any(read))]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair the first input with the output if registered so; any input of a map."""
        kinds = self.entry.inplace
        if kinds is None:
            return [(tensor, out_data[0]) for tensor in in_data]
        kind = Inplace.IN_OUT if len(in_data) == 1 else Inplace.LHS_OUT
        return [(in_data[0], out_data[0])] if kind in kinds else []

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair out_grad with the first input's gradient, which NumPy bodies compute last.

        The second input's gradient may also share its memory if it equals out_grad.
        """
        entry = self.entry
        if entry.inplace is not None:
            kind = Inplace.OUT_IN if len(in_data) == 1 else Inplace.OUT_LHS
            return [(out_grad[0], in_grad[0])] if kind in entry.inplace else []
        pairs = [(out_grad[0], in_grad[0])] if isinstance(entry.gradients[0], Formula) else []
        for gradient, tensor in list(zip(entry.gradients, in_grad, strict=True))[1:]:
            if isinstance(gradient, Formula) and gradient.passes_first:
                pairs.append((out_grad[0], tensor))
        return pairs

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Return the registered requests, in order."""
        resource = self.entry.resource
        return list(resource(inputs) if callable(resource) else resource)

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Return the same temporary space; random numbers are available in forward only."""
        requests = self.forward_resource(inputs)
        return [request for request in requests if request.kind is ResourceKind.TEMP_SPACE]

    def create_operator(self) -> Operator:
        """Create the body that calls the registered functions on arrays."""
        return SimpleOperator(self.entry, self.parameters)


def select_inputs(reads: Reads, out_grad: T, in_data: Sequence[T], output: T) -> tuple[T, ...]:
    """Select the tensors that a gradient of this kind reads, in the order of its arguments."""
    further: dict[Reads, Sequence[T]] = {
        Reads.OUT_GRAD: (),
        Reads.OUTPUT: (output,),
        Reads.INPUTS: in_data,
    }
    return (out_grad, *further[reads])


class SimpleOperator(Operator):
    """NumPy body that stores the results of an entry's functions on arrays."""

    def __init__(self, entry: SimpleEntry, parameters: Parameters) -> None:
        self.entry, self.parameters = entry, parameters

    def forward(self, call: ForwardCall) -> None:
        """Compute output = forward(inputs)."""
        if call.is_requested("output"):
            forward = self.entry.forward
            value = forward.array(list(call.inputs), self.parameters, call)
            value = checked_result(forward, value, call.outputs.output, "the output")
            call.store(output=value)

    def backward(self, call: BackwardCall) -> None:
        """Compute each gradient; the first input's is last because it may overwrite out_grad."""
        inputs = [(call.inputs, name) for name in self.entry.arguments]
        gradient, *tensors = select_inputs(
            self.entry.reads, (call.output_gradients, "output"), inputs, (call.outputs, "output")
        )
        for side, name in reversed(list(enumerate(self.entry.arguments))):
            formula, target = self.entry.gradients[side], call.input_gradients[name]
            if not call.is_requested(name) or not isinstance(formula, Formula):
                continue
            # A tensor that the function does not read may be absent: out_grad replaces it.
            read = [
                tensor if reads else gradient
                for tensor, reads in zip((gradient, *tensors), formula.reads, strict=True)
            ]
            arrays = [group[key] for group, key in read]
            value = self.shaped(formula.array(arrays, self.parameters, call), target.shape)
            value = checked_result(formula, value, target, f"the gradient of {name}")
            call.store(**{name: value})

    def shaped(self, gradient: Array | np.generic, shape: Shape) -> Array | np.generic:
        """Return an elementwise gradient in the input's shape; subclasses reduce it if they
        broadcast.
        """
        return gradient


def _is_shape(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(
        isinstance(size, (int, np.integer)) and size >= 0 for size in value
    )


def checked_result(formula: Formula, value: object, target: Array, name: str) -> Array:
    """Return a function's result as an array of the target's shape, or as a scalar.

    Raises UserError, at the function's line, for another shape or an incompatible dtype. NumPy
    would broadcast a result that is too small, such as a sum over one axis too many.
    """
    result = np.asarray(value)
    is_array = isinstance(value, (np.ndarray, np.generic))
    repeats = result.shape == () and (formula.is_map or not is_array or target.size == 1)
    if (result.shape == target.shape or repeats) and np.can_cast(
        result.dtype, target.dtype, "same_kind"
    ):
        return result
    got = _described(result) if is_array else type(value).__name__
    # All on the first line, because `check-op` shows only that line.
    problem = f"{formula.function.__name__} returns {got} as {name}, {_described(target)}"
    raise entry_error(formula.function, problem, hint="return an array of that shape")


def _described(array: Array) -> str:
    return f"{array.dtype} of shape {array.shape}"
