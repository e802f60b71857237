"""Executor: a symbol bound to arrays, with MXNet's names and planned memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.compiler.bound import BoundPlan, BoundRequest
from mxrun.compiler.plan_cache import bound_plan
from mxrun.graph.symbol import Symbol
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import allocate
from mxrun.imperative.arrays.copying import assign
from mxrun.imperative.arrays.creation import empty, from_numpy, zeros
from mxrun.imperative.symbolic.debug import debug_text
from mxrun.imperative.symbolic.memory import Region
from mxrun.imperative.symbolic.monitor import Monitor, MonitorCallback
from mxrun.imperative.symbolic.programs import Programs
from mxrun.imperative.symbolic.specs import (
    bound_request,
    further_tensors,
    inferred_specs,
    require_spec,
)
from mxrun.operator.kernel import OpReqType

Arrays = dict[str, Any]


class Executor:
    """Symbol bound to arrays; everything is planned and allocated when it is bound.

    `forward` and `backward` push one function each to the engine and return at once. Outputs and
    gradients are the same arrays after every call. `bind` and `simple_bind` of a symbol make one.
    """

    def __init__(
        self,
        request: BoundRequest,
        bound: BoundPlan,
        arguments: Arrays,
        gradients: Arrays,
        states: Arrays,
        region: Region,
        further: Mapping[str, Any],
    ) -> None:
        """further: arrays of the outputs and of other pinned tensors by the plan's names."""
        self._request, self._bound, self._region = request, bound, region
        self._symbol = request.symbol
        self._arguments, self._states = arguments, states
        self._gradients = gradients
        pinned = {bound.gradients[name]: gradients[name] for name in bound.gradients}
        arrays = {**arguments, **states, **pinned, **further}
        name = ", ".join(dict.fromkeys(head.node.name for head in self._symbol.heads))
        self._programs = Programs(bound, arrays, region, name)
        self._outputs = [arrays[output] for output in bound.outputs]
        self._monitor: Monitor | None = None
        # The programs and the token of the last forward pass in training, which a backward pass
        # continues.
        self._pending: tuple[Programs, object] | None = None
        # The token of the last backward pass.
        self._spent: object = None

    # -- binding -------------------------------------------------------------------------------

    @classmethod
    def on_arrays(
        cls,
        symbol: Symbol,
        context: Context,
        wanted: Mapping[str, OpReqType],
        arguments: Arrays,
        gradients: Arrays,
        states: Arrays,
        region: Region | None = None,
    ) -> Executor:
        """Return an executor on arrays that fit; region: memory to use if it is large enough."""
        specs = {name: array.spec for name, array in {**arguments, **states}.items()}
        inputs = [n for n in arguments if wanted.get(n, OpReqType.NULL) is OpReqType.NULL]
        request = bound_request(symbol, specs, inputs, wanted, context)
        bound = bound_plan(request)
        nbytes = bound.plan.reusable_bytes
        if region is None or region.chunk.nbytes < nbytes:
            region = Region(allocate(context, max(nbytes, 1)))
        further = {
            name: empty(bound.plan.specs[name].shape, context, bound.plan.specs[name].dtype)
            for name in further_tensors(bound, specs)
        }
        return cls(request, bound, arguments, gradients, states, region, further)

    # -- arrays --------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[Any]:
        """Arrays of the outputs, which every forward pass overwrites."""
        return list(self._outputs)

    @property
    def output_dict(self) -> Arrays:
        """Arrays of the outputs by name."""
        return dict(zip(self._symbol.list_outputs(), self._outputs, strict=True))

    @property
    def arg_dict(self) -> Arrays:
        """Arrays of the arguments by name."""
        return dict(self._arguments)

    @property
    def grad_dict(self) -> dict[str, Any | None]:
        """Arrays of the gradients by argument; None where none is wanted."""
        return {name: self._gradients.get(name) for name in self._arguments}

    @property
    def aux_dict(self) -> Arrays:
        """Arrays of the auxiliary states by name."""
        return dict(self._states)

    @property
    def arg_arrays(self) -> list[Any]:
        """Arrays of the arguments in the order of `list_arguments`."""
        return list(self._arguments.values())

    @property
    def grad_arrays(self) -> list[Any | None]:
        """Arrays of the gradients in that order; None where none is wanted."""
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[Any]:
        """Arrays of the auxiliary states in the order of `list_auxiliary_states`."""
        return list(self._states.values())

    # -- memory --------------------------------------------------------------------------------

    @property
    def planned_bytes(self) -> int:
        """Bytes of arguments, gradients, states, outputs and all that is computed between."""
        return self._bound.plan.planned_bytes

    def memory_report(self) -> dict[str, int]:
        """Return the bytes by purpose that are live at the peak of the larger phase."""
        classes = self._bound.plan.classes()
        return {name: each.peak_bytes for name, each in classes.items() if each.peak_bytes}

    def debug_str(self) -> str:
        """Return the graph as text, and the size of the memory."""
        plan = self._bound.plan
        lines = [f"Total {plan.planned_bytes} bytes planned"]
        lines += [f"\t{name}: {nbytes}" for name, nbytes in self.memory_report().items()]
        return debug_text(self._symbol) + "\n".join([*lines, ""])

    # -- passes --------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **inputs: Any) -> list[Any]:
        """Compute the outputs and return their arrays at once; the engine fills them.

        is_train: whether operators behave as in training, auxiliary states are updated and
        `backward` may follow. inputs: new values of arguments by name, arrays or NumPy arrays.

        Raises UserError for an unknown argument or another shape.
        """
        for name, value in inputs.items():
            if name not in self._arguments:
                hint = nearest(name, self._arguments) or f"known: {', '.join(self._arguments)}"
                raise UserError(Diagnostic(f"there is no argument {name!r}", hint=hint))
            _assign(f"argument {name!r}", self._arguments[name], value)
        programs = self._programs
        if self._monitor is not None:
            programs = self._monitor.programs
            self._monitor.forward(is_train)
        else:
            self._push(programs.forward_operator(is_train))
        token = object() if is_train else None
        programs.region.holder = token
        self._pending = (programs, token) if is_train else None
        return self.outputs

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients by the last forward pass, which must have been one in training.

        out_grads: gradients of the outputs, an array or one for each output; a loss needs none.
        Raises UserError if a gradient is missing or has another shape, and for a second call after
        one forward pass if the first has overwritten what it reads.
        """
        programs, token = self._pending or (self._programs, object())
        if programs.region.holder is not token:
            hint = (
                "call forward(is_train=True) before, and no other pass in the same memory between"
            )
            raise UserError(Diagnostic("backward without a forward pass in training", hint=hint))
        if self._spent is token and not programs.bound.repeats_backward:
            problem = "this backward pass overwrites what it reads, and so cannot be repeated"
            raise UserError(Diagnostic(problem, hint="call forward(is_train=True) before each"))
        given = self._given_gradients(out_grads)
        copies = [
            (source, programs.arrays[programs.bound.head_gradients[position]])
            for position, source in given.items()
        ]
        self._spent = token
        requests = self._request.gradients
        zeroed = [
            self._gradients[name] for name in self._bound.zero if requests[name] is OpReqType.WRITE
        ]
        if self._monitor is not None and programs is self._monitor.programs:
            self._monitor.backward(requests, copies, zeroed)
        else:
            self._push(programs.backward_operator(requests, copies, zeroed))

    def _push(self, operator: Any) -> None:
        self._region.chunk.engine.push(operator)

    def _given_gradients(self, out_grads: Any) -> dict[int, NDArrayBase]:
        """Return the gradients of the outputs that need one, by position."""
        listed: list[Any] = []
        if out_grads is not None:
            listed = list(out_grads) if isinstance(out_grads, (list, tuple)) else [out_grads]
        if len(listed) > len(self._outputs):
            expected = f"at most {len(self._outputs)}"
            raise UserError(Diagnostic("too many out_grads", None, expected, str(len(listed))))
        found = {}
        for position in self._bound.head_gradients:
            given = listed[position] if position < len(listed) else None
            name = self._symbol.heads[position].name
            if given is None:
                hint = "give out_grads, or end the network with a loss or make_loss"
                raise UserError(Diagnostic(f"the output {name!r} needs a gradient", hint=hint))
            found[position] = _as_array(f"the gradient of {name!r}", given, self._outputs[position])
        return found

    # -- parameters and shapes -----------------------------------------------------------------

    def copy_params_from(
        self,
        arg_params: Mapping[str, Any],
        aux_params: Mapping[str, Any] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy values into arguments and auxiliary states by name.

        Raises UserError for another shape, and for a name that the symbol does not have unless
        `allow_extra_params`.
        """
        groups = [("argument", self._arguments, arg_params)]
        groups.append(("auxiliary state", self._states, aux_params or {}))
        for kind, known, given in groups:
            unknown = [name for name in given if name not in known]
            if unknown and not allow_extra_params:
                raise UserError(
                    Diagnostic(f"there is no {kind} {name!r}", hint=nearest(name, known))
                    for name in unknown
                )
        for kind, known, given in groups:
            for name, value in given.items():
                if name in known:
                    _assign(f"{kind} {name!r}", known[name], value)

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **shapes: Shape
    ) -> Executor:
        """Return an executor for other shapes that shares memory with this one.

        Arrays whose shapes stay are the same; smaller ones are the first elements of this one's.
        partial_shaping: permits other shapes of arguments that are not named. allow_up_sizing:
        permits larger arrays, which get memory of their own.

        Raises UserError for what is not permitted, and where shapes are not decided.
        """
        types = {name: array.dtype for name, array in {**self._arguments, **self._states}.items()}
        specs = inferred_specs(self._symbol, shapes, types)
        resized = partial(self._resized, specs, allow_up_sizing)
        changed = [
            name
            for name, array in self._arguments.items()
            if specs[name].shape != array.shape and name not in shapes
        ]
        if changed and not partial_shaping:
            raise UserError(
                Diagnostic(
                    f"the shape of {name!r} changes, which is not named",
                    expected=str(self._arguments[name].shape),
                    got=str(specs[name].shape),
                    hint="partial_shaping=True permits it",
                )
                for name in changed
            )
        return Executor.on_arrays(
            self._symbol,
            self._region.chunk.context,
            self._request.gradients,
            {name: resized(name, array) for name, array in self._arguments.items()},
            {name: resized(name, array) for name, array in self._gradients.items()},
            {name: resized(name, array) for name, array in self._states.items()},
            self._region,
        )

    def _resized(
        self, specs: Mapping[str, TensorSpec], allow_up_sizing: bool, name: str, array: Any
    ) -> Any:
        spec = specs[name]
        if spec.shape == array.shape:
            return array
        if spec.nbytes <= array.nbytes:
            return array_module.make(array.chunk, spec.shape, spec.dtype, array.offset)
        if not allow_up_sizing:
            problem, hint = f"{name!r} would become larger", "allow_up_sizing=True permits it"
            raise UserError(Diagnostic(problem, None, str(array.shape), str(spec.shape), hint=hint))
        return zeros(spec.shape, self._region.chunk.context, spec.dtype)

    # -- observation ---------------------------------------------------------------------------

    def set_monitor_callback(
        self, callback: MonitorCallback | None, monitor_all: bool = False
    ) -> None:
        """Call `callback(name, array)` for every output of every node of each pass.

        Of a backward pass these are the gradients of a node's arguments that are computed, such as
        `fc1_backward_output1`. The nodes then run without fusion, in a plan of their own, and the
        passes wait for them. monitor_all: also for the inputs of every node in forward passes. None
        ends that.
        """
        self._monitor = None
        if callback is not None:
            self._monitor = Monitor(self._request, self._programs, callback, monitor_all)


def _as_array(what: str, value: Any, like: NDArrayBase) -> NDArrayBase:
    """Return a value as an array of the same shape and dtype as another one."""
    if not isinstance(value, NDArrayBase):
        value = from_numpy(value, like.context, like.dtype)
    require_spec(what, like.spec, value)
    found: NDArrayBase = value
    return found


def _assign(what: str, target: NDArrayBase, value: Any) -> None:
    """Push a copy of a value's present content to an array; UserError for another shape."""
    shape = value.shape if isinstance(value, NDArrayBase) else np.shape(value)
    if tuple(shape) != target.shape:
        problem = f"{what} has another shape"
        raise UserError(Diagnostic(problem, None, str(target.shape), str(tuple(shape))))
    assign(target, ..., value, target.shape)
