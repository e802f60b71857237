"""Specs of a symbol's variables, and what bind requires of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.compiler.bound import BoundPlan, BoundRequest
from mxrun.device.storage import device_of
from mxrun.graph.compose import require_variables
from mxrun.graph.infer import infer
from mxrun.graph.node import NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.imperative.arrays.array import NDArrayBase, share_bytes
from mxrun.imperative.arrays.creation import dtype_name
from mxrun.operator.kernel import OpReqType


def inferred_specs(
    symbol: Symbol, shapes: Mapping[str, Shape], types: Mapping[str, Any]
) -> dict[str, TensorSpec]:
    """Return the specs of all variables. Raises UserError where a shape is not decided."""
    require_variables([*shapes, *types], symbol.list_inputs())
    known = {name: tuple(size or None for size in shape) for name, shape in shapes.items()}
    named = {name: dtype_name(dtype) for name, dtype in types.items()}
    inference = infer(symbol.heads, known, named)
    if inference.diagnostics:
        raise UserError(inference.diagnostics)
    if not inference.complete:
        unknown = ", ".join(inference.unknown)
        hint = "give them by name"
        raise UserError(Diagnostic(f"shapes are not known: {unknown}", hint=hint))
    return {n.name: inference.spec(NodeEntry(n)) for n in symbol.nodes if n.is_variable}


def bound_request(
    symbol: Symbol,
    specs: Mapping[str, TensorSpec],
    inputs: Mapping[str, Any] | Sequence[str],
    wanted: Mapping[str, OpReqType],
    context: Context,
) -> BoundRequest:
    """Return the request of a plan for an executor.

    inputs: variables that are io slots. wanted: the request of each argument.
    """
    states = set(symbol.list_auxiliary_states())
    return BoundRequest(
        symbol,
        specs,
        [name for name in inputs if name not in states],
        {name: each for name, each in wanted.items() if each is not OpReqType.NULL},
        device_of(context).description,
    )


def further_tensors(bound: BoundPlan, specs: Mapping[str, TensorSpec]) -> list[str]:
    """Return the pinned tensors that are neither variables nor gradients."""
    others = {*specs, *bound.gradients.values()}
    return [block.name for block in bound.plan.pinned if block.name not in others]


def require_consistent(symbol: Symbol, specs: Mapping[str, TensorSpec]) -> None:
    """Raise UserError if the specs of the variables contradict each other."""
    shapes = {name: spec.shape for name, spec in specs.items()}
    inference = infer(symbol.heads, shapes, {name: spec.dtype for name, spec in specs.items()})
    if inference.diagnostics:
        raise UserError(inference.diagnostics)


def require_one_device(arrays: Mapping[str, NDArrayBase], context: Context) -> None:
    """Raise UserError for an array that is on another device than `context`."""
    for name, array in arrays.items():
        if array.context != context:
            problem = f"the array of {name!r} is on another device"
            raise UserError(Diagnostic(problem, None, str(context), str(array.context)))


def require_own_memory(
    gradients: Mapping[str, NDArrayBase], others: Mapping[str, NDArrayBase]
) -> None:
    """Raise UserError if a gradient shares memory with another one or with one of `others`.

    The program that writes the gradients would overwrite what it still reads.
    """
    before = {f"the array of {name!r}": array for name, array in others.items()}
    for name, gradient in gradients.items():
        what = f"the gradient array of {name!r}"
        for other, array in before.items():
            if share_bytes(gradient, array):
                problem = f"{what} shares memory with {other}"
                raise UserError(Diagnostic(problem, hint="give every gradient an array of its own"))
        before[what] = gradient


def require_spec(what: str, spec: TensorSpec, array: Any) -> None:
    """Raise UserError unless an array has the shape and the data type of `spec`."""
    if (tuple(array.shape), str(array.dtype)) != (spec.shape, spec.dtype):
        got = TensorSpec(tuple(array.shape), str(array.dtype))
        raise UserError(Diagnostic(f"{what} does not fit", None, str(spec), str(got)))
