"""NumPy bodies as prepared kernels: the implementation `numpy`, which every operator has."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.errors import Diagnostic, InternalError, SourceLocation, UserError
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, align
from mxrun.operator.kernel import (
    BackwardRequest,
    Buffers,
    Call,
    ForwardRequest,
    Kernel,
    OpReqType,
    PythonCall,
)
from mxrun.operator.operator import OpContext, Operator
from mxrun.operator.property import ResourceKind, ResourceRequest
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.operator.tensor import Tensor
from mxrun.runtime.random import Stream


class NumpyImplementation(Implementation):
    """Kernels of `create_operator()` bodies, for plain layouts and every request."""

    name = "numpy"

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel:
        """Wrap the forward body; auxiliary states are the trailing inputs."""
        arguments = len(prop.list_arguments())
        auxiliary = arguments + len(prop.list_auxiliary_states())
        resources = prop.forward_resource(request.inputs[:arguments])
        inputs = tuple(_plain(spec) for spec in request.inputs)
        outputs = tuple(
            None if req is OpReqType.NULL else _plain(spec)
            for spec, req in zip(request.outputs, request.requests, strict=True)
        )
        body = _body(prop)

        def bind(buffers: Buffers) -> tuple[Call, ...]:
            tensors = _tensors(buffers.inputs, inputs)
            out_data = [
                Tensor(address, _plain(spec))
                for address, spec in zip(buffers.outputs, request.outputs, strict=True)
            ]
            in_data = [tensor for tensor in tensors[:arguments] if tensor is not None]
            states = [tensor for tensor in tensors[arguments:auxiliary] if tensor is not None]
            random = tensors[auxiliary] if auxiliary < len(tensors) else None

            def run() -> None:
                requested = _requested(resources, buffers.workspace, random, request.stream)
                context = OpContext(request.is_train, requested)
                body.forward(context, in_data, request.requests, out_data, states)

            return (PythonCall(run),)

        return Kernel(
            implementation=self.name,
            inputs=inputs,
            outputs=outputs,
            bind=bind,
            workspace_bytes=_workspace(resources),
            flops=prop.flops(_shapes(request.inputs), _shapes(request.outputs)),
            bytes_moved=_bytes((*inputs, *outputs)),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel:
        """Wrap the backward body; tensors that the property does not declare are passed as None."""
        resources = prop.backward_resource(request.in_grad)
        groups = (request.out_grad, request.in_data, request.out_data)
        inputs = tuple(None if spec is None else _plain(spec) for group in groups for spec in group)
        outputs = tuple(
            None if req is OpReqType.NULL else _plain(spec)
            for spec, req in zip(request.in_grad, request.requests, strict=True)
        )
        body = _body(prop)
        first, second = len(request.out_grad), len(request.out_grad) + len(request.in_data)

        def bind(buffers: Buffers) -> tuple[Call, ...]:
            tensors = _tensors(buffers.inputs[: len(inputs)], inputs)
            in_grad = _tensors(buffers.outputs, outputs)
            context = OpContext(True, _requested(resources, buffers.workspace, None, 0))
            out_grad, in_data, out_data = tensors[:first], tensors[first:second], tensors[second:]
            requests = request.requests
            return (
                PythonCall(
                    lambda: body.backward(
                        context, out_grad, in_data, out_data, requests, in_grad, ()
                    )
                ),
            )

        requested = sum(req is not OpReqType.NULL for req in request.requests)
        return Kernel(
            implementation=self.name,
            inputs=inputs,
            outputs=outputs,
            bind=bind,
            workspace_bytes=_workspace(resources),
            flops=requested * request.forward.flops,
            bytes_moved=_bytes((*inputs, *outputs)),
        )


NUMPY = NumpyImplementation()


def _body(prop: AnyProperty) -> Operator:
    """Return the property's NumPy body.

    Raises UserError, at the method's line, if `create_operator` returns another type.
    """
    body: object = prop.create_operator()
    if not isinstance(body, Operator):
        code = type(prop).create_operator.__code__
        problem = f"create_operator of {prop.type_string} returns {type(body).__name__}"
        place = SourceLocation(code.co_filename, code.co_firstlineno, 1)
        raise UserError(Diagnostic(problem, place, "an Operator (mxrun.operator.operator)"))
    return body


def _plain(spec: TensorSpec) -> TensorSpec:
    return spec.with_layout(PLAIN)


def _shapes(specs: Sequence[TensorSpec]) -> list[Shape]:
    return [spec.shape for spec in specs]


def _bytes(specs: Sequence[TensorSpec | None]) -> int:
    return sum(spec.nbytes for spec in specs if spec is not None)


def _tensors(addresses: Sequence[int], specs: Sequence[TensorSpec | None]) -> list[Tensor | None]:
    return [
        None if spec is None else Tensor(address, spec)
        for address, spec in zip(addresses, specs, strict=True)
    ]


def _workspace(resources: Sequence[ResourceRequest]) -> int:
    return sum(align(resource.nbytes) for resource in resources)


def _requested(
    resources: Sequence[ResourceRequest], address: int, random: Tensor | None, stream: int
) -> list[Tensor | Stream]:
    """Return one resource per request: a part of the workspace as bytes, or the random stream."""
    answers: list[Tensor | Stream] = []
    for resource in resources:
        if resource.kind is ResourceKind.RANDOM:
            if random is None:
                raise InternalError("random numbers are available in forward only")
            key, step, part = map(int, random.array)
            answers.append(Stream(key ^ stream, step, part))
            continue
        answers.append(Tensor(address, TensorSpec((resource.nbytes,), "uint8")))
        address += align(resource.nbytes)
    return answers
