"""NumPy bodies as prepared kernels: the implementation `numpy`, which every operator has.

A body sees its inputs as read-only arrays, because other operators read the same memory. Those that
the property declares as mutated are writable.

A description says whether and in which types a device runs them (`NumpyBodies`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from mxrun.base.device import DeviceDescription, NumpyBodies
from mxrun.base.dtype import BFLOAT16, FLOAT32, numpy_dtype
from mxrun.base.errors import Diagnostic, InternalError, UserError, location_of
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, align
from mxrun.operator.kernel import (
    BackwardRequest,
    ForwardRequest,
    Handles,
    Kernel,
    OpReqType,
)
from mxrun.operator.launch import Handle, Launch, PythonLaunch, Views
from mxrun.operator.operator import (
    Array,
    BackwardCall,
    ByName,
    ForwardCall,
    Operator,
    Resource,
)
from mxrun.operator.property import ResourceKind, ResourceRequest
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.runtime.random import Stream


class NumpyImplementation(Implementation):
    """Kernels of `create_operator()` bodies, for plain layouts and every request."""

    name = "numpy"

    def runs_on(self, device: DeviceDescription) -> bool:
        """Return whether a device runs NumPy bodies."""
        return device.numpy_bodies is not NumpyBodies.NONE

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel:
        """Wrap the forward body; auxiliary states are the trailing inputs."""
        names, states, results = (
            prop.list_arguments(),
            prop.list_auxiliary_states(),
            prop.list_outputs(),
        )
        auxiliary = len(names) + len(states)
        resources = prop.forward_resource(request.inputs[: len(names)])
        inputs = tuple(_plain(spec) for spec in request.inputs)
        outputs = tuple(
            None if req is OpReqType.NULL else _plain(spec)
            for spec, req in zip(request.outputs, request.requests, strict=True)
        )
        body, mutated = _body(prop), frozenset(prop.list_mutated_inputs())

        def prepare(views: Views, handles: Handles) -> Callable[[], None]:
            tensors = _inputs(views, handles.inputs, inputs, mutated)
            random = tensors[auxiliary] if auxiliary < len(tensors) else None
            call = ForwardCall(
                inputs=ByName("input", names, tensors[: len(names)]),
                outputs=ByName(
                    "output", results, _results(views, handles.outputs, outputs, request.outputs)
                ),
                requests=ByName("output", results, request.requests),
                is_train=request.is_train,
                resources=_resources(views, resources, handles.workspace, random, request.stream),
                auxiliary=ByName("auxiliary state", states, tensors[len(names) : auxiliary]),
            )
            return partial(body.forward, call)

        return Kernel(
            implementation=self.name,
            inputs=inputs,
            outputs=outputs,
            bind=partial(_launch, prepare, mutated),
            workspace_bytes=_workspace(resources),
            flops=prop.flops(_shapes(request.inputs), _shapes(request.outputs)),
            bytes_moved=_bytes((*inputs, *outputs)),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Wrap the backward body, if there is one; tensors that are not declared are absent."""
        if not has_gradient(prop):
            return None
        body = _body(prop)
        names, results = prop.list_arguments(), prop.list_outputs()
        resources = prop.backward_resource(request.in_grad)
        groups = (request.out_grad, request.in_data, request.out_data)
        inputs = tuple(None if spec is None else _plain(spec) for group in groups for spec in group)
        outputs = tuple(
            None if req is OpReqType.NULL else _plain(spec)
            for spec, req in zip(request.in_grad, request.requests, strict=True)
        )
        first, second = len(results), len(results) + len(names)

        def prepare(views: Views, handles: Handles) -> Callable[[], None]:
            tensors = _inputs(views, handles.inputs[: len(inputs)], inputs)
            gradients = _results(views, handles.outputs, outputs, request.in_grad)
            call = BackwardCall(
                inputs=ByName("input", names, tensors[first:second], _UNDECLARED),
                outputs=ByName("output", results, tensors[second:], _UNDECLARED),
                requests=ByName("input gradient", names, request.requests),
                is_train=True,
                resources=_resources(views, resources, handles.workspace, None, 0),
                output_gradients=ByName("gradient of", results, tensors[:first], _UNREAD),
                input_gradients=ByName("input gradient", names, gradients),
            )
            return partial(body.backward, call)

        requested = sum(req is not OpReqType.NULL for req in request.requests)
        return Kernel(
            implementation=self.name,
            inputs=inputs,
            outputs=outputs,
            bind=partial(_launch, prepare, ()),
            workspace_bytes=_workspace(resources),
            flops=requested * request.forward.flops,
            bytes_moved=_bytes((*inputs, *outputs)),
        )


NUMPY = NumpyImplementation()


def has_gradient(prop: AnyProperty) -> bool:
    """Return whether the NumPy body of an operator computes gradients."""
    return type(_body(prop)).backward is not Operator.backward


# Reasons why a tensor is absent in backward.
_UNDECLARED = "a tensor that declare_backward_dependency does not name"
_UNREAD = f"{_UNDECLARED}, or the gradient of an output that nothing reads, which is absent"


def _body(prop: AnyProperty) -> Operator:
    """Return the property's NumPy body.

    Raises UserError, at the method's line, if `create_operator` returns another type, or if forward
    or backward has other arguments than one call.
    """
    body: object = prop.create_operator()
    if not isinstance(body, Operator):
        problem = f"create_operator of {prop.type_string} returns {type(body).__name__}"
        place = location_of(type(prop).create_operator)
        raise UserError(Diagnostic(problem, place, "an Operator (mxrun.operator.operator)"))
    for method, kind in ((body.forward, ForwardCall), (body.backward, BackwardCall)):
        function = getattr(method, "__func__", None)
        accepts = _accepts(function, 2) if function else _accepts(method, 1)
        if not accepts:
            own = ", ".join(["self", *inspect.signature(method).parameters])
            problem = f"{method.__name__} of {prop.type_string} has other arguments than one call"
            expected = f"{method.__name__}(self, call: {kind.__name__})"
            hint = (
                "read call.inputs.NAME, store with call.store(NAME=value); "
                "mxrun.operator.operator documents both calls"
            )
            diagnostic = Diagnostic(problem, location_of(method), expected, f"({own})", hint=hint)
            raise UserError(diagnostic)
    return body


@cache
def _accepts(function: Callable[..., object], count: int) -> bool:
    """Return whether a function can be called with `count` arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


def _plain(spec: TensorSpec) -> TensorSpec:
    return spec.with_layout(PLAIN)


def _shapes(specs: Sequence[TensorSpec]) -> list[Shape]:
    return [spec.shape for spec in specs]


def _bytes(specs: Sequence[TensorSpec | None]) -> int:
    return sum(spec.nbytes for spec in specs if spec is not None)


def _launch(
    prepare: Callable[[Views, Handles], Callable[[], None]],
    mutated: Collection[int],
    handles: Handles,
) -> tuple[Launch, ...]:
    """Return the launch of a body; mutated: positions of the inputs that it writes."""
    only_read = tuple(
        each for index, each in enumerate(handles.inputs) if each and index not in mutated
    )
    return (PythonLaunch(lambda views: _rounding(prepare, views, handles), only_read),)


def _rounding(
    prepare: Callable[[Views, Handles], Callable[[], None]], views: Views, handles: Handles
) -> Callable[[], None]:
    """Return the body's function, which computes in float32 where tensors are bfloat16.

    Such tensors are converted before the call, and results are rounded once, after it. The copies
    exist only meanwhile.
    """
    tensors: list[tuple[Array, bool]] = []

    def collected(handle: Handle, spec: TensorSpec) -> Array:
        array = views(handle, spec)
        tensors.append((array, any(handle is output for output in handles.outputs)))
        return array

    body = prepare(collected, handles)
    if all(array.dtype != numpy_dtype(BFLOAT16) for array, _ in tensors):
        return body

    def run() -> None:
        given = iter(tensors)
        results: list[tuple[Array, Array]] = []

        def wide(handle: Handle, spec: TensorSpec) -> Array:
            narrow, is_written = next(given)
            if spec.dtype != BFLOAT16:
                return narrow
            array: Array = narrow.astype(np.float32)
            if is_written:
                results.append((narrow, array))
            return array

        prepare(wide, handles)()
        for narrow, array in results:
            narrow[...] = array

    return run


def _arrays(
    views: Views, handles: Sequence[Handle | None], specs: Sequence[TensorSpec | None]
) -> list[Array | None]:
    """Return the tensors as arrays; None for those without a spec."""
    return [
        None if spec is None or handle is None else views(handle, spec)
        for handle, spec in zip(handles, specs, strict=True)
    ]


def _inputs(
    views: Views,
    handles: Sequence[Handle | None],
    specs: Sequence[TensorSpec | None],
    mutated: Collection[int] = (),
) -> list[Array | None]:
    """Return the tensors that a body reads; read-only but for those at the positions `mutated`.

    An output in the memory of an input is an array of its own, which is writable.
    """
    return [
        array if array is None or index in mutated else _read_only(array)
        for index, array in enumerate(_arrays(views, handles, specs))
    ]


def _read_only(array: Array) -> Array:
    array = array.view()
    array.flags.writeable = False
    return array


def _results(
    views: Views,
    handles: Sequence[Handle | None],
    written: Sequence[TensorSpec | None],
    specs: Sequence[TensorSpec],
) -> list[Array]:
    """Return the arrays that a body writes; read-only zeros, without memory, for null requests."""
    return [
        np.broadcast_to(np.zeros((), _computed_in(spec)), spec.shape) if own is None else own
        for own, spec in zip(_arrays(views, handles, written), specs, strict=True)
    ]


def _computed_in(spec: TensorSpec) -> np.dtype[Any]:
    return numpy_dtype(FLOAT32 if spec.dtype == BFLOAT16 else spec.dtype)


def _workspace(resources: Sequence[ResourceRequest]) -> int:
    return sum(align(resource.nbytes) for resource in resources)


def _resources(
    views: Views,
    requests: Sequence[ResourceRequest],
    workspace: Handle | None,
    random: Array | None,
    stream: int,
) -> list[Resource]:
    """Return one resource per request: a part of the workspace as bytes, or the random stream."""
    answers: list[Resource] = []
    offset = 0
    for request in requests:
        if request.kind is ResourceKind.RANDOM:
            if random is None:
                raise InternalError("random numbers are available in forward only")
            answers.append(partial(_stream_at, random, stream))
            continue
        spec = TensorSpec((request.nbytes,), "uint8")
        if workspace is None:
            answers.append(np.empty(0, np.uint8))
        else:
            answers.append(views(workspace + offset, spec))
        offset += align(request.nbytes)
    return answers


def _stream_at(state: Array, stream: int) -> Stream:
    """Return the node's stream at the present step; state: the run's key, the step, the part."""
    key, step, part = map(int, state)
    return Stream(key ^ stream, step, part)
