"""RNN in compiled loops and oneDNN's products, in float32 or bfloat16."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.kernel_part import onednn_serves
from mxrun.device.cpu.onednn.primitive import Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, extra, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.dropout import DropoutMask, dropout_loop
from mxrun.ops.rnn.forward import ForwardParts, ForwardSlots
from mxrun.ops.rnn.layout import SequenceLayout
from mxrun.ops.rnn.onednn_backward import BackwardParts, BackwardSlots
from mxrun.ops.rnn.onednn_parts import KernelBuilder
from mxrun.ops.rnn.operator import RNNProperty
from mxrun.ops.rnn.parameters import RNNParameters

_DATA, _VECTOR = 0, 1


@implement("RNN", backend="onednn")
class OnednnRNN(Implementation):
    """For each layer one product of all steps with the input weight, then a loop over the steps.

    The loop multiplies states by packed panels of the recurrent weight, and backward ends with
    products over all steps for the gradients of weights and data. oneDNN's own LSTM runs as fast on
    one thread (2 layers of 200, 35 steps, batch 20: forward 9.6 ms, backward 18.4), but waits at
    barriers on several, needs 18 MB beside these tensors, and has no other modes' lengths.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare all layers; without backward nothing is kept."""
        assert isinstance(prop, RNNProperty)
        layout = _layout(prop, request)
        if layout is None:
            return None
        p, names = prop.parameters, prop.list_arguments()
        drops = p.has_mask and request.is_train
        results = dict(zip(prop.list_outputs(), request.requests, strict=True))
        wanted = {name for name, req in results.items() if req is not OpReqType.NULL}
        if "mask" in wanted and not drops:
            return None
        specs = layout.kept()
        build = KernelBuilder(layout, len(specs) if request.has_backward else 0)
        kept = {
            key: extra(number) if build.kept else build.space(f"{key[1:]} {key[0] % 2}", spec)
            for number, (key, spec) in enumerate(specs.items())
        }
        found = {name: target(number) for number, name in enumerate(results) if name in wanted}
        mask = None
        if drops:
            spec = request.outputs[-1]
            mask = found.get("mask") or build.space("mask", spec)
            _draw(build, request, mask, spec)
        read = (*names, *prop.list_auxiliary_states())
        arguments = {name: source(number) for number, name in enumerate(read)}
        prefix = "carried_" if p.carries else ""
        low = request.outputs[0]
        slots = ForwardSlots(
            data=arguments["data"],
            vector=arguments["parameters"],
            state=arguments.get(f"{prefix}state"),
            state_cell=arguments.get(f"{prefix}state_cell"),
            lengths=arguments.get("sequence_length"),
            output=found.get("output") or build.space("output", low),
            output_dtype=low.dtype,
            last_state=found.get("state"),
            last_cell=found.get("state_cell"),
            first_state=found.get("first_state"),
            first_cell=found.get("first_state_cell"),
            mask=mask,
            kept=kept,
        )
        try:
            ForwardParts(build, slots).add()
        except Unsupported:
            return None
        inputs = [spec.with_layout(PLAIN) for spec in request.inputs]
        inputs[_DATA] = replace(inputs[_DATA], dtype=layout.dtype)
        flops = prop.flops([layout.data], [])
        return native_kernel(
            self.name,
            [build.chain()],
            (*inputs[: len(read)], *(each if drops else None for each in inputs[len(read) :])),
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            request.requests,
            request.device,
            extra_outputs=tuple(specs.values()) if build.kept else (),
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradients of all layers."""
        assert isinstance(prop, RNNProperty)
        p, names, results = prop.parameters, prop.list_arguments(), prop.list_outputs()
        read = request.forward.inputs[_DATA]
        assert read is not None
        layout = SequenceLayout(p, read.shape, read.dtype, request.device)
        first, second = len(results), len(results) + len(names)
        groups = (request.out_grad, request.in_data, request.out_data)
        specs = [spec and spec.with_layout(PLAIN) for group in groups for spec in group]
        specs += request.forward.extra_outputs
        given = [None if spec is None else source(n) for n, spec in enumerate(specs)]
        # Hidden states have no gradients.
        heads = dict(zip(results, given[: prop.num_visible_outputs], strict=False))
        arguments = dict(zip(names, given[first:second], strict=True))
        kept = layout.kept()
        begin = len(specs) - len(kept)
        targets: dict[str, Slot] = {
            name: target(number)
            for number, name in enumerate(names)
            if request.requests[number] is not OpReqType.NULL
        }
        data, vector = arguments["data"], arguments["parameters"]
        assert data is not None
        assert vector is not None
        slots = BackwardSlots(
            data=data,
            vector=vector,
            lengths=arguments.get("sequence_length"),
            mask=given[second + len(results) - 1] if p.has_mask else None,
            output_grad=heads["output"],
            last_state_grad=heads.get("state"),
            last_cell_grad=heads.get("state_cell"),
            data_grad=targets.get("data"),
            data_dtype=request.in_grad[_DATA].dtype,
            vector_grad=targets.get("parameters"),
            state_grad=targets.get("state"),
            cell_grad=targets.get("state_cell"),
            kept={key: source(begin + number) for number, key in enumerate(kept)},
        )
        build = KernelBuilder(layout)
        BackwardParts(build, slots).add()
        for index in (0, first):
            spec = specs[index]
            specs[index] = None if spec is None else replace(spec, dtype=layout.dtype)
        used = {slot for slot in build.chain().slots() if slot.group == "inputs"}
        numbers = {slot.index for slot in used}
        gradients: list[TensorSpec | None] = [
            None if name == "sequence_length" else spec.with_layout(PLAIN)
            for name, spec in zip(names, request.in_grad, strict=True)
        ]
        return native_kernel(
            self.name,
            [build.chain()],
            tuple(spec if n in numbers else None for n, spec in enumerate(specs)),
            tuple(gradients),
            request.requests,
            request.device,
            flops=2 * request.forward.flops,
        )


def _layout(prop: RNNProperty, request: ForwardRequest) -> SequenceLayout | None:
    """Return the layout of the rows; None if the loops do not support the tensors."""
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    specs = dict(zip(names, request.inputs, strict=False))
    data, output = specs.pop("data"), request.outputs[0]
    lengths = specs.pop("sequence_length", None)
    others = [*specs.values(), *request.outputs[1:]]
    if not onednn_serves(data, output, low=True) or not onednn_serves(*others):
        return None
    if lengths is not None and lengths.dtype != "int32":
        return None
    if output.dtype == BFLOAT16 and request.requests[0] is OpReqType.ADD:
        return None
    dtype = output.dtype
    if dtype == BFLOAT16 and not _multiplies(prop.parameters, data.shape, request.device):
        # float32 is faster than the bfloat16 reference.
        dtype = FLOAT32
    return SequenceLayout(prop.parameters, data.shape, dtype, request.device)


def _multiplies(p: RNNParameters, data: Shape, device: DeviceDescription) -> bool:
    """Return whether oneDNN has bfloat16 products for this processor."""
    left, right = TensorSpec((data[0] * data[1], data[2]), BFLOAT16), (p.rows, data[2])
    output = TensorSpec((data[0] * data[1], p.rows))
    try:
        product = operations.matmul(
            left, TensorSpec(right, BFLOAT16), output, device.threads, False, True
        )
    except Unsupported:
        return False
    return not product.is_reference


def _draw(build: KernelBuilder, request: ForwardRequest, mask: Slot, spec: TensorSpec) -> None:
    """Add the loop that draws the mask."""
    p = build.layout.parameters
    drawn = DropoutMask(
        count=spec.elements,
        state=source(len(request.inputs) - 1),
        stream=request.stream,
        data=None,
        output=None,
        mask=mask,
        limit=p.limit,
        scale=1 / (1 - p.p),
    )
    team = request.device.team_for_elements(spec.elements)
    build.parts.append(LoopPart(dropout_loop, drawn, team))
