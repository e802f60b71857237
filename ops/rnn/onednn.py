"""RNN in compiled loops and products, on tiles of bfloat16 oneDNN's, in float32 or bfloat16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mxrun.base.device import CUDA, Cut, DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.kernel_part import onednn_serves
from mxrun.operator.constraints import Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, extra, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.dense_product import dense_product_serves
from mxrun.ops.dropout import DropoutMask, dropout_loop
from mxrun.ops.rnn.backward import BackwardParts, BackwardSlots
from mxrun.ops.rnn.forward import ForwardParts, ForwardSlots
from mxrun.ops.rnn.layout import SequenceLayout, TensorKey
from mxrun.ops.rnn.onednn_parts import KernelBuilder
from mxrun.ops.rnn.operator import RNNProperty
from mxrun.ops.rnn.parameters import RNNParameters
from mxrun.ops.rnn.tables import RowTensor

_DATA = 0
# Number of the output's gradient among the inputs of backward.
_OUTPUT_GRAD = 0
# Records that become gradients.
_GATES = ("gates", "others")


@implement("RNN", backend="onednn")
class OnednnRNN(Implementation):
    """For each layer one product of all steps with the input weight, then a loop over the steps.

    The loop multiplies states by packed panels of the recurrent weight, and backward ends with
    products over all steps for the gradients of weights and data. oneDNN's own LSTM runs as fast on
    one thread (2 layers of 200, 35 steps, batch 20: forward 9.6 ms, backward 18.4), but is one
    task, needs 18 MB beside these tensors, and has no other modes' lengths.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare all layers; without backward nothing is recorded."""
        assert isinstance(prop, RNNProperty)
        layout = _layout(prop, request)
        if layout is None:
            return None
        drops = prop.parameters.has_mask and request.is_train
        results = dict(zip(prop.list_outputs(), request.requests, strict=True))
        wanted = {name for name, req in results.items() if req is not OpReqType.NULL}
        if "mask" in wanted and not drops:
            return None
        low = request.outputs[0]
        keeps_output = request.requests[0] is OpReqType.WRITE and low.dtype == layout.dtype
        specs = layout.records(keeps_output) if request.has_backward else {}
        build = KernelBuilder(layout, len(specs))
        records = {
            key: RowTensor(extra(number), spec.shape[-1], dtype=spec.dtype)
            for number, (key, spec) in enumerate(specs.items())
        }
        found = {name: target(number) for number, name in enumerate(results) if name in wanted}
        mask = None
        if drops:
            spec = request.outputs[-1]
            mask = found.get("mask") or build.space("mask", spec)
            _draw(build, request, mask, spec)
        slots = _forward_slots(prop, request, build, found, mask, records)
        try:
            ForwardParts(build, slots).add()
        except Unsupported:
            return None
        read = len(prop.list_arguments()) + len(prop.list_auxiliary_states())
        inputs = [spec.with_layout(PLAIN) for spec in request.inputs]
        inputs[_DATA] = replace(inputs[_DATA], dtype=layout.dtype)
        flops = prop.flops([layout.data], [])
        return native_kernel(
            self.name,
            [build.chain()],
            (*inputs[:read], *(each if drops else None for each in inputs[read:])),
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            request.requests,
            request.device,
            extra_outputs=tuple(specs.values()),
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradients of all layers."""
        assert isinstance(prop, RNNProperty)
        read = request.forward.inputs[_DATA]
        assert read is not None
        layout = SequenceLayout(prop.parameters, read.shape, read.dtype, request.device)
        specs, extras = _read_specs(request, layout), request.forward.extra_outputs
        records = layout.records(keeps_output=True)
        if len(records) != len(extras):
            records = layout.records(keeps_output=False)
        space = _GradientSpace(
            layout,
            len(specs) - len(extras),
            records,
            has_output_grad=specs[_OUTPUT_GRAD] is not None,
        )
        data_grad = request.in_grad[_DATA]
        if layout.dtype == FLOAT32:
            # oneDNN has no product of float32 matrices that is rounded to bfloat16.
            data_grad = replace(data_grad, dtype=FLOAT32)
        build = KernelBuilder(layout, len(space.specs))
        slots = _backward_slots(prop, request, specs, records, space, data_grad.dtype)
        BackwardParts(build, slots).add()
        used = {slot.index for slot in build.chain().slots() if slot.group == "inputs"}
        gradients: list[TensorSpec | None] = [
            None if name == "sequence_length" else spec.with_layout(PLAIN)
            for name, spec in zip(
                prop.list_arguments(), (data_grad, *request.in_grad[1:]), strict=True
            )
        ]
        kernel = native_kernel(
            self.name,
            [build.chain()],
            tuple(spec if n in used else None for n, spec in enumerate(specs)),
            tuple(gradients),
            request.requests,
            request.device,
            extra_outputs=tuple(space.specs),
            flops=2 * request.forward.flops,
        )
        return replace(kernel, in_place=tuple(space.in_place))


def _forward_slots(
    prop: RNNProperty,
    request: ForwardRequest,
    build: KernelBuilder,
    outputs: Mapping[str, Slot],
    mask: Slot | None,
    records: Mapping[TensorKey, RowTensor],
) -> ForwardSlots:
    """Return the tensors of a forward call; the output has space of its own if nobody wants it.

    outputs: those that are wanted.
    """
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    arguments = {name: source(number) for number, name in enumerate(names)}
    prefix, output = "carried_" if prop.parameters.carries else "", request.outputs[0]
    return ForwardSlots(
        data=arguments["data"],
        vector=arguments["parameters"],
        state=arguments.get(f"{prefix}state"),
        state_cell=arguments.get(f"{prefix}state_cell"),
        lengths=arguments.get("sequence_length"),
        output=outputs.get("output") or build.space("output", output),
        output_dtype=output.dtype,
        last_state=outputs.get("state"),
        last_cell=outputs.get("state_cell"),
        first_state=outputs.get("first_state"),
        first_cell=outputs.get("first_state_cell"),
        mask=mask,
        records=records,
    )


def _read_specs(request: BackwardRequest, layout: SequenceLayout) -> list[TensorSpec | None]:
    """Return the specs of what backward may read, in the kernel's order.

    Those are the outputs' gradients, inputs, outputs and forward's records. Data, the output and
    its gradient have the dtype of the layout.
    """
    groups = (request.out_grad, request.in_data, request.out_data)
    specs = [spec and spec.with_layout(PLAIN) for group in groups for spec in group]
    inputs = len(request.out_grad)
    for index in (_OUTPUT_GRAD, inputs, inputs + len(request.in_data)):
        spec = specs[index]
        specs[index] = None if spec is None else replace(spec, dtype=layout.dtype)
    return [*specs, *request.forward.extra_outputs]


def _backward_slots(
    prop: RNNProperty,
    request: BackwardRequest,
    specs: Sequence[TensorSpec | None],
    records: Mapping[TensorKey, TensorSpec],
    space: _GradientSpace,
    data_dtype: str,
) -> BackwardSlots:
    """Return the tensors of a backward call.

    specs: of what it may read; absent tensors are None. records: of forward, the last of these.
    data_dtype: of data's gradient.
    """
    names, results = prop.list_arguments(), prop.list_outputs()
    given = [None if spec is None else source(n) for n, spec in enumerate(specs)]
    inputs, outputs = len(results), len(results) + len(names)
    # Hidden states have no gradients.
    heads = dict(zip(results, given[: prop.num_visible_outputs], strict=False))
    arguments = dict(zip(names, given[inputs:outputs], strict=True))
    found = dict(zip(results, given[outputs:], strict=False))
    prefix, firsts = ("first_", found) if prop.parameters.carries else ("", arguments)
    targets: dict[str, Slot] = {
        name: target(number)
        for number, name in enumerate(names)
        if request.requests[number] is not OpReqType.NULL
    }
    data, vector = arguments["data"], arguments["parameters"]
    assert data is not None
    assert vector is not None
    begin = len(specs) - len(records)
    return BackwardSlots(
        data=data,
        vector=vector,
        lengths=arguments.get("sequence_length"),
        mask=found.get("mask"),
        output=found["output"],
        first_state=firsts.get(f"{prefix}state"),
        first_cell=firsts.get(f"{prefix}state_cell"),
        output_grad=heads["output"],
        last_state_grad=heads.get("state"),
        last_cell_grad=heads.get("state_cell"),
        data_grad=targets.get("data"),
        data_dtype=data_dtype,
        vector_grad=targets.get("parameters"),
        state_grad=targets.get("state"),
        cell_grad=targets.get("state_cell"),
        records={
            key: RowTensor(source(begin + number), spec.shape[-1], dtype=spec.dtype)
            for number, (key, spec) in enumerate(records.items())
        },
        gradients=space.gradients,
        read_grad=space.read_grad,
        states_space=space.states_space,
    )


class _GradientSpace:
    """Scratch tensors of backward that may take the memory of tensors that it has read.

    gradients: those of the gates, by what is recorded. read_grad: that of the output of a layer but
    the last one. states_space: for the states of one of two directions of a single layer. specs: of
    the kernel's extra outputs; in_place: as in Kernel.
    """

    def __init__(
        self,
        layout: SequenceLayout,
        begin: int,
        records: Mapping[TensorKey, TensorSpec],
        has_output_grad: bool,
    ) -> None:
        """`begin`: number of the first record among the kernel's inputs."""
        self.specs: list[TensorSpec] = []
        self.in_place: list[tuple[int, int]] = []
        self.gradients: dict[TensorKey, Slot] = {}
        for number, (key, spec) in enumerate(records.items()):
            # Rows of bfloat16 are shorter than what is recorded.
            if key[-1] in _GATES and layout.dtype == FLOAT32:
                self.gradients[key] = self._add(spec, begin + number)
        p, replaced = layout.parameters, _OUTPUT_GRAD if has_output_grad else None
        if p.gates == 1 and p.directions == 1:
            slot = self._add(layout.spec(layout.rows, p.rows), replaced)
            self.gradients |= {(layer, 0, "gates"): slot for layer in range(p.num_layers)}
            replaced = None
        self.read_grad: Slot | None = None
        if p.num_layers > 1:
            self.read_grad = self._add(layout.spec(layout.rows, layout.width), replaced)
        self.states_space: Slot | None = None
        if p.num_layers == 1 and p.directions > 1:
            self.states_space = self._add(layout.spec(layout.rows, layout.width), replaced)

    def _add(self, spec: TensorSpec, replaced: int | None) -> Slot:
        number = len(self.specs)
        self.specs.append(spec)
        if replaced is not None:
            self.in_place.append((replaced, number))
        return extra(number)


@implement("RNN", backend="blocks", devices=(CUDA,))
class BlockRNN(OnednnRNN):
    """The same loops on GPUs, half a warp for a sequence, with products by block kernels."""


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
    p, dtype = prop.parameters, output.dtype
    if dtype == BFLOAT16:
        # float32 is faster than the bfloat16 reference. Rows are copied by pairs of elements.
        has_pairs = p.state_size % 2 == 0 and p.hidden % 2 == 0
        serves = dense_product_serves(dtype, request.device)
        if not has_pairs or not (serves or _multiplies(p, data.shape, request.device)):
            dtype = FLOAT32
    return SequenceLayout(p, data.shape, dtype, request.device)


def _multiplies(p: RNNParameters, data: Shape, device: DeviceDescription) -> bool:
    """Return whether oneDNN has bfloat16 products for this processor."""
    left, right = TensorSpec((data[0] * data[1], data[2]), BFLOAT16), (p.rows, data[2])
    output = TensorSpec((data[0] * data[1], p.rows))
    try:
        product = operations.matmul(
            left, TensorSpec(right, BFLOAT16), output, Cut(1, 1), False, True
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
    build.parts.append(
        LoopPart(dropout_loop, drawn, request.device.tasks_for_elements(spec.elements))
    )
