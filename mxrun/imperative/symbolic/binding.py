"""Binding of a symbol: to given arrays, or to one arena for given shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.context import Context, current_context
from mxrun.base.tensor import Shape
from mxrun.compiler.plan_cache import bound_plan
from mxrun.graph.symbol import Symbol
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.chunk import BorrowedChunk, allocate
from mxrun.imperative.arrays.creation import zeros
from mxrun.imperative.symbolic.arguments import (
    GradientRequests,
    arrays_by_name,
    gradient_requests,
)
from mxrun.imperative.symbolic.executor import Executor
from mxrun.imperative.symbolic.memory import Region
from mxrun.imperative.symbolic.specs import (
    bound_request,
    further_tensors,
    inferred_specs,
    require_consistent,
    require_one_device,
    require_own_memory,
    require_spec,
)
from mxrun.operator.kernel import OpReqType

ByOrderOrName = Sequence[Any] | Mapping[str, Any]


def executor_of_shapes(
    symbol: Symbol,
    context: Context | None,
    requests: GradientRequests,
    types: Mapping[str, Any],
    shapes: Mapping[str, Shape],
) -> Executor:
    """Return an executor all of whose arrays are parts of one arena; see `simple_bind`."""
    context = context or current_context()
    specs = inferred_specs(symbol, shapes, types)
    wanted = gradient_requests(requests, symbol.list_arguments())
    request = bound_request(symbol, specs, shapes, wanted, context)
    bound = bound_plan(request)
    plan = bound.plan
    nbytes = plan.planned_bytes
    arena = allocate(context, nbytes)
    arena.device.fill(arena.handle.memory, arena.handle.offset, arena.handle.offset + nbytes, 0)
    arrays = {
        block.name: array_module.make(
            BorrowedChunk.part(arena, block.offset, plan.specs[block.name].nbytes),
            plan.specs[block.name].shape,
            plan.specs[block.name].dtype,
        )
        for block in plan.pinned
    }
    for name, spec in specs.items():
        if name not in arrays:
            arrays[name] = zeros(spec.shape, context, spec.dtype)
    gradients = {name: arrays[pinned] for name, pinned in bound.gradients.items()}
    for name in bound.zero:
        gradients[name] = zeros(specs[name].shape, context, specs[name].dtype)
    reusable = BorrowedChunk.part(arena, plan.pinned_bytes, max(nbytes - plan.pinned_bytes, 1))
    return Executor(
        request,
        bound,
        {name: arrays[name] for name in symbol.list_arguments()},
        gradients,
        {name: arrays[name] for name in symbol.list_auxiliary_states()},
        Region(reusable),
        {name: arrays[name] for name in further_tensors(bound, specs)},
    )


def executor_of_arrays(
    symbol: Symbol,
    context: Context | None,
    args: ByOrderOrName,
    args_grad: ByOrderOrName | None,
    requests: GradientRequests,
    aux_states: ByOrderOrName | None,
) -> Executor:
    """Return an executor that computes in the given arrays; see `Symbol.bind`."""
    names = symbol.list_arguments()
    arguments = arrays_by_name("args", args, names)
    gradients = arrays_by_name("args_grad", args_grad, names, may_lack=True)
    states = arrays_by_name("aux_states", aux_states, symbol.list_auxiliary_states())
    wanted = gradient_requests(requests, names)
    wanted = {name: wanted[name] for name in names if name in gradients}
    context = context or next((array.context for array in arguments.values()), current_context())
    require_one_device({**arguments, **states, **gradients}, context)
    specs = {name: array.spec for name, array in {**arguments, **states}.items()}
    require_consistent(symbol, specs)
    for name, array in gradients.items():
        require_spec(f"the gradient array of {name!r}", specs[name], array)
    written = {n: each for n, each in gradients.items() if wanted[n] is not OpReqType.NULL}
    require_own_memory(written, {**arguments, **states})
    return Executor.on_arrays(symbol, context, wanted, arguments, gradients, states)
