"""Simple operators as properties and readable bodies: all that follows from a registration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, require_array
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
from mxrun.operator.shape import is_known, known, unify
from mxrun.operator.simple_entry import Array, Formula, Inplace, Reads, SimpleEntry, refused
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
P = TypeVar("P", bound=Parameters)


class SimpleProperty(OperatorProperty[P]):
    """An operator of one or two inputs and one output that is made of a SimpleEntry.

    An operator whose function hangs on a parameter answers another entry for each.
    """

    precision = Precision.INHERIT

    @property
    def entry(self) -> SimpleEntry:
        """What the operator computes."""
        raise NotImplementedError

    def list_arguments(self) -> tuple[str, ...]:
        """The tensors that forward gets."""
        return self.entry.arguments

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """One shape for all, or what the shape function makes of complete shapes."""
        shape_of = self.entry.shape
        if shape_of is None:
            names = (*self.entry.arguments, "output")
            *inputs, output = same_shape(names, [*inputs, *outputs], "elementwise")
            return PartialInference(inputs, [output], [])
        if not all(map(is_known, inputs)):
            return PartialInference(inputs, outputs, [])
        made = shape_of(self.parameters, *map(known, inputs))
        if not _is_shape(made):
            problem = f"the shape function of {self.type_string} returns {made!r}"
            raise refused(shape_of, problem, "a tuple of sizes, which are integers from 0")
        output = unify("output", outputs[0], tuple(map(int, made)), "the shape function")
        return PartialInference(inputs, [output], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Computed where there is a function."""
        return tuple(
            GradientKind.COMPUTES if isinstance(gradient, Formula) else gradient
            for gradient in self.entry.gradients
        )

    def list_passed_gradients(self) -> dict[int, int]:
        """Those whose formula is out_grad."""
        return {
            index: 0
            for index, gradient in enumerate(self.entry.gradients)
            if isinstance(gradient, Formula) and gradient.is_map and gradient.passes_first
        }

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad, and what else the gradients depend on; nothing where none is computed."""
        formulas = self.entry.computed
        if not formulas:
            return []
        gradient, *tensors = read_by(self.entry.reads, out_grad[0], in_data, out_data[0])
        reads = zip(*(formula.reads[1:] for formula in formulas), strict=True)
        return [gradient, *(each for each, read in zip(tensors, reads, strict=True) if any(read))]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over the first input where the registration says so; a map's over any."""
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
        """The first input's gradient, which is computed last, over the output's.

        So may the second's be where it is the output's itself.
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
        """The registration's requests, in their order."""
        resource = self.entry.resource
        return list(resource(inputs) if callable(resource) else resource)

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """The same temporary space; random numbers are forward's alone."""
        requests = self.forward_resource(inputs)
        return [request for request in requests if request.kind is ResourceKind.TEMP_SPACE]

    def create_operator(self) -> Operator:
        """The registration's functions on arrays."""
        return SimpleOperator(self.entry, self.parameters)


def read_by(reads: Reads, out_grad: T, in_data: Sequence[T], output: T) -> tuple[T, ...]:
    """What a gradient of that kind reads, in the order of its function's arguments."""
    further: dict[Reads, Sequence[T]] = {
        Reads.OUT_GRAD: (),
        Reads.OUTPUT: (output,),
        Reads.INPUTS: in_data,
    }
    return (out_grad, *further[reads])


class SimpleOperator(Operator):
    """Stores what an entry's functions make of whole arrays."""

    def __init__(self, entry: SimpleEntry, parameters: Parameters) -> None:
        self.entry, self.parameters = entry, parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = forward(inputs)."""
        if req[0] is not OpReqType.NULL:
            arrays = [tensor.array for tensor in in_data]
            forward = self.entry.forward
            value = forward.array(arrays, self.parameters, context)
            assign(out_data[0], req[0], fitting(forward, value, out_data[0], "the output"))

    def backward(
        self,
        context: OpContext,
        out_grad: Sequence[Tensor | None],
        in_data: Sequence[Tensor | None],
        out_data: Sequence[Tensor | None],
        req: Sequence[OpReqType],
        in_grad: Sequence[Tensor | None],
        aux_states: Sequence[Tensor],
    ) -> None:
        """Each gradient; the first input's comes last, because it may lie over out_grad."""
        tensors = read_by(self.entry.reads, out_grad[0], in_data, out_data[0])
        for side in reversed(range(len(in_grad))):
            formula, gradient = self.entry.gradients[side], in_grad[side]
            if req[side] is OpReqType.NULL or gradient is None:
                continue
            if isinstance(formula, Formula):
                # What the function does not depend on may be absent: out_grad stands in for it.
                arrays = [
                    require_array(tensor if reads else out_grad[0])
                    for tensor, reads in zip(tensors, formula.reads, strict=True)
                ]
                value = formula.array(arrays, self.parameters, context)
                value = self.shaped(value, gradient.shape)
                name = f"the gradient of {self.entry.arguments[side]}"
                assign(gradient, req[side], fitting(formula, value, gradient, name))

    def shaped(self, gradient: Array | np.generic, shape: Shape) -> Array | np.generic:
        """A gradient of elements as one of an input with that shape: it is that already."""
        return gradient


def _is_shape(made: object) -> bool:
    return isinstance(made, (tuple, list)) and all(
        isinstance(size, (int, np.integer)) and size >= 0 for size in made
    )


def fitting(formula: Formula, value: object, tensor: Tensor, name: str) -> Array:
    """What a function made for a tensor, as an array of its shape or a number for every element.

    Raises UserError, at the function's line, for another shape or a type that the tensor's cannot
    hold: NumPy would repeat what is too small, be it a sum over an axis too many.
    """
    made, target = np.asarray(value), tensor.array
    is_array = isinstance(value, (np.ndarray, np.generic))
    repeats = made.shape == () and (formula.is_map or not is_array or target.size == 1)
    if (made.shape == target.shape or repeats) and np.can_cast(
        made.dtype, target.dtype, "same_kind"
    ):
        return made
    got = _described(made) if is_array else type(value).__name__
    # All on the first line, which alone a check shows.
    problem = f"{formula.function.__name__} returns {got} as {name}, {_described(target)}"
    raise refused(formula.function, problem, hint="return an array of that shape")


def _described(array: Array) -> str:
    return f"{array.dtype} of shape {array.shape}"
