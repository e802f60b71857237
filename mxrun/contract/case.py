"""Test case of an operator, and the runner that calls the operator on it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.once import cached_property
from mxrun.base.tensor import Shape
from mxrun.contract import call
from mxrun.contract.call import BackwardData, BackwardRun, ForwardRun
from mxrun.contract.memory import Array
from mxrun.operator.kernel import OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.operator.shape import require_complete

# (inputs, outputs, out_grad) -> the scalar whose gradient backward computes.
Objective = Callable[[list[Array], list[Array], list[Array]], float]

SINGLE, DOUBLE = "float32", "float64"


class Extent(Enum):
    """Kind of a case: ordinary values, values of many magnitudes, or tensors for several tasks."""

    ORDINARY = auto()
    WIDE = auto()
    LARGE = auto()


@dataclass(frozen=True, eq=False)
class Case:
    """Operator with one set of parameters, and values for its arguments and auxiliary states.

    name: the case's name in reports.
    inputs: the same values in float32 and in float64, except arguments with a fixed type.
    is_train: whether forward runs in training mode.
    differentiable: whether backward computes the derivative of the objective, by default of
        <out_grad, outputs>, or of the loss if there is one.
    extent: selects the checks that use the case.
    undefined: the value ranges tried if none gave finite outputs; empty otherwise.
    """

    name: str
    prop: AnyProperty
    inputs: Mapping[str, tuple[Array, ...]]
    is_train: bool = True
    differentiable: bool = True
    objective: Objective | None = None
    extent: Extent = Extent.ORDINARY
    undefined: str = ""

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments."""
        return self.prop.list_arguments()

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.prop.list_outputs()

    @cached_property
    def differentiated(self) -> tuple[int, ...]:
        """Indices of the arguments with a computed gradient; none outside training."""
        kinds = self.prop.list_gradients() if self.is_train else ()
        return tuple(i for i, kind in enumerate(kinds) if kind is GradientKind.COMPUTES)

    @cached_property
    def input_shapes(self) -> list[Shape]:
        """Shapes of the arguments."""
        return [array.shape for array in self.inputs[SINGLE][: len(self.arguments)]]

    @cached_property
    def output_shapes(self) -> list[Shape]:
        """Shapes of the outputs."""
        inferred = self.prop.infer_shape([*self.input_shapes], [None] * len(self.outputs))
        return [require_complete(shape) for shape in inferred.outputs]

    def output_types(self, dtype: str) -> list[str]:
        """Return the element types of the outputs for the inputs of `dtype`."""
        types = [str(array.dtype) for array in self.inputs[dtype][: len(self.arguments)]]
        _, outputs = self.prop.infer_type([*types], [None] * len(self.outputs))
        return [found or dtype for found in outputs]

    def blank_outputs(self, dtype: str, value: float = np.nan) -> list[Array]:
        """Return arrays for forward to write to."""
        return [
            blank(shape, kind, value)
            for shape, kind in zip(self.output_shapes, self.output_types(dtype), strict=True)
        ]

    def blank_gradients(self, dtype: str, value: float = np.nan) -> list[Array]:
        """Return arrays for backward to write to."""
        inputs = self.inputs[dtype][: len(self.arguments)]
        return [blank(array.shape, str(array.dtype), value) for array in inputs]

    def with_inputs(self, inputs: Mapping[str, tuple[Array, ...]]) -> Case:
        """Return the same case with other values."""
        return replace(self, inputs=inputs)


def exact(values: Array) -> Array:
    """Round the values to float32 in their own type, so that both types hold the same numbers."""
    if not np.issubdtype(values.dtype, np.floating):
        return values
    return values.astype(SINGLE).astype(values.dtype)


def blank(shape: Shape, dtype: str, value: float) -> Array:
    """Return an array filled with one value; NaN becomes 99 for integers."""
    if not np.issubdtype(dtype, np.floating) and not np.isfinite(value):
        value = 99
    return np.full(shape, value, dtype)


@dataclass(frozen=True)
class Variant:
    """Implementation and input type with which a case is computed."""

    implementation: Implementation
    dtype: str

    def __str__(self) -> str:
        name = self.implementation.name
        return name if self.dtype == SINGLE else f"{name} in {self.dtype}"


class CaseRunner:
    """Runs of one case, with a cache of those that several checks compare with.

    Cached runs write every output, on one thread.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.prop = case.prop
        self._forward: dict[tuple[str, str], ForwardRun | None] = {}
        self._backward: dict[tuple[str, str], BackwardRun] = {}
        self._out_grad: dict[str, tuple[Array, ...]] = {}

    @cached_property
    def implementations(self) -> list[Implementation]:
        """The NumPy body and the registered implementations that accept the case in float32."""
        return [each for each in call.all_implementations(self.prop) if self.forward(each)]

    @cached_property
    def variants(self) -> list[Variant]:
        """Variants of the case: all implementations in float32, and the NumPy body in float64."""
        return [*(Variant(each, SINGLE) for each in self.implementations), Variant(NUMPY, DOUBLE)]

    def forward(self, implementation: Implementation, dtype: str = SINGLE) -> ForwardRun | None:
        """Return the cached forward run; None if the implementation declines the case."""
        key = implementation.name, dtype
        if key not in self._forward:
            self._forward[key] = self.run(implementation, dtype=dtype)
        return self._forward[key]

    def accepted(self, implementation: Implementation, dtype: str = SINGLE) -> ForwardRun:
        """Return the forward run of an implementation that accepts the case."""
        run = self.forward(implementation, dtype)
        assert run is not None
        return run

    def backward(self, implementation: Implementation, dtype: str = SINGLE) -> BackwardRun:
        """Return the cached backward run, which follows the implementation's forward run."""
        key = implementation.name, dtype
        if key not in self._backward:
            self._backward[key] = self.run_backward(implementation, dtype=dtype)
        return self._backward[key]

    def run(
        self,
        implementation: Implementation = NUMPY,
        before: Sequence[Array] | None = None,
        requests: Sequence[OpReqType] | None = None,
        inplace: Mapping[int, int] | None = None,
        inputs: Sequence[Array] | None = None,
        dtype: str = SINGLE,
        conditions: call.Conditions = call.STANDARD,
    ) -> ForwardRun | None:
        """Call forward once; by default all outputs are written over NaN."""
        return call.forward(
            implementation,
            self.prop,
            self.case.inputs[dtype] if inputs is None else inputs,
            self.case.blank_outputs(dtype) if before is None else before,
            requests,
            inplace,
            self.case.is_train,
            conditions,
        )

    def run_backward(
        self,
        implementation: Implementation = NUMPY,
        before: Sequence[Array] | None = None,
        requests: Sequence[OpReqType] | None = None,
        inplace: Mapping[int, int] | None = None,
        poison: bool = False,
        dtype: str = SINGLE,
        conditions: call.Conditions = call.STANDARD,
        following: ForwardRun | None = None,
    ) -> BackwardRun:
        """Call backward once after a forward run, by default the implementation's own."""
        run = following or self.accepted(implementation, dtype)
        return call.backward(
            implementation,
            self.prop,
            self.backward_data(run, dtype),
            self.case.blank_gradients(dtype) if before is None else before,
            run,
            requests,
            inplace,
            poison,
            conditions,
        )

    def backward_data(self, run: ForwardRun, dtype: str) -> BackwardData:
        """Return the tensors backward may read: random output gradients, inputs, outputs."""
        inputs = list(self.case.inputs[dtype][: len(self.case.arguments)])
        return BackwardData(self.out_grad(dtype), inputs, run.outputs)

    def out_grad(self, dtype: str) -> list[Array]:
        """Return normally distributed output gradients, the same values for every type."""
        if dtype not in self._out_grad:
            random = np.random.default_rng(zlib.crc32(self.case.name.encode()))
            types = zip(self.case.output_shapes, self.case.output_types(dtype), strict=True)
            self._out_grad[dtype] = tuple(
                random.standard_normal(shape).astype(kind) for shape, kind in types
            )
        return list(self._out_grad[dtype])

    @cached_property
    def reversed_case(self) -> CaseRunner:
        """The same case with the elements of its tensors in reverse order."""
        case = self.case
        turned = {
            dtype: tuple(np.ascontiguousarray(np.flip(array)) for array in arrays)
            for dtype, arrays in case.inputs.items()
        }
        return CaseRunner(case.with_inputs(turned))
