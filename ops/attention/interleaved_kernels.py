"""Kernels of the interleaved products: compiled loops over float32 or bfloat16 tensors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Floats, Integer
from mxrun.codegen.jit import native
from mxrun.codegen.loops import rows_of_task
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    Slot,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.attention.interleaved import InterleavedProperty, Matrices
from mxrun.ops.dense_product import MatrixProduct, StoredMatrices, dense_product
from mxrun.ops.rows import clear


class RowClearing(Arguments):
    """Arguments of `clear_rows_loop`: rows of `columns` elements, `step` apart."""

    rows: Integer
    columns: Integer
    step: Integer
    output: Floats


@native
def clear_rows_loop(call: RowClearing) -> None:
    """Fill the rows with 0."""
    for row in rows_of_task(call.rows):
        clear(call.output, row * call.step, call.columns)


@implement(
    "_contrib_interleaved_matmul_selfatt_qk",
    "_contrib_interleaved_matmul_selfatt_valatt",
    "_contrib_interleaved_matmul_encdec_qk",
    "_contrib_interleaved_matmul_encdec_valatt",
    backend="jit",
)
class CompiledInterleaved(Implementation):
    """Products of stacks of matrices that are read and written where the projections hold them."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the product."""
        assert isinstance(prop, InterleavedProperty)
        output = request.outputs[0].with_layout(PLAIN)
        if output.dtype not in (FLOAT32, BFLOAT16) or not output.elements:
            return None
        inputs = tuple(TensorSpec(spec.shape, output.dtype) for spec in request.inputs)
        shapes = [spec.shape for spec in (*inputs, output)]
        tensors = [*map(source, range(len(inputs))), target(0)]
        # The output is tensor 2 also beside a single argument.
        places = dict(zip((*range(len(inputs)), 2), zip(shapes, tensors, strict=True), strict=True))
        part = _Products(prop, places, output.dtype, request.device).part(
            prop.output, prop.left, prop.right, places[2][1], _is_added(request.requests[0])
        )
        return native_kernel(
            self.name,
            [part],
            inputs,
            (output,),
            without_add_requests(request.requests),
            request.device,
            flops=prop.flops(shapes, []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare a product for each requested gradient, and zeros of parts that have none."""
        assert isinstance(prop, InterleavedProperty)
        output = request.forward.outputs[0]
        assert output is not None
        inputs = request.forward.inputs
        shapes = [spec.shape for spec in request.in_grad]
        places = {2: (output.shape, source(0))}
        places |= {index: (shape, source(1 + index)) for index, shape in enumerate(shapes)}
        products = _Products(prop, places, output.dtype, request.device)
        parts: list[KernelPart] = []
        written: dict[int, set[int]] = {}
        for gradient, left, right in prop.products():
            index = gradient.tensor
            asked = request.requests[index]
            if asked is not OpReqType.NULL:
                parts.append(products.part(gradient, left, right, target(index), _is_added(asked)))
                written.setdefault(index, set()).add(gradient.part)
                if asked is not OpReqType.ADD:
                    unread = set(range(gradient.parts)) - _parts_read(prop, index)
                    parts += [
                        products.zeros(replace(gradient, part=part), shapes[index], target(index))
                        for part in sorted(unread)
                        if len(written[index]) == 1
                    ]
        return native_kernel(
            self.name,
            parts,
            (output, *inputs, None),
            tuple(TensorSpec(shape, output.dtype) for shape in shapes),
            without_add_requests(request.requests),
            request.device,
            flops=2 * request.forward.flops,
            adding=adding(partial(self.prepare_backward, prop), request, range(len(shapes))),
        )


def _is_added(request: OpReqType) -> bool:
    return request is OpReqType.ADD


def _parts_read(prop: InterleavedProperty, tensor: int) -> set[int]:
    return {each.part for each in (prop.left, prop.right) if each.tensor == tensor}


class _Products:
    """Products of an operator's tensors: shape and slot of each by its number."""

    def __init__(
        self,
        prop: InterleavedProperty,
        places: dict[int, tuple[Shape, Slot]],
        dtype: str,
        device: DeviceDescription,
    ) -> None:
        self.places, self.device, self.heads = places, device, prop.parameters.heads
        self.dtype, self.nbytes = dtype, item_size(dtype)
        self.factor = prop.factor([places[0][0]])

    def part(
        self, output: Matrices, left: Matrices, right: Matrices, slot: Slot, is_added: bool
    ) -> LoopPart:
        """Return the product of two stacks into a third, which is in the tensor of a slot."""
        product = MatrixProduct(
            self._matrices(left),
            self._matrices(right),
            self._matrices(output, slot),
            factor=self.factor,
            is_added=is_added,
        )
        return dense_product(product, self.device)

    def zeros(self, part: Matrices, shape: Shape, slot: Slot) -> LoopPart:
        """Return the filling of one part of all heads."""
        count, rows, columns = part.shape(shape, self.heads)
        first = part.strides(shape, self.heads)[0]
        arguments = RowClearing(
            rows=count * rows,
            columns=columns,
            step=columns * part.parts,
            output=replace(slot, offset=first * self.nbytes),
        )
        loop = clear_rows_loop.bfloat16 if self.dtype == BFLOAT16 else clear_rows_loop
        tasks = self.device.tasks_for_elements(count * rows * columns)
        return LoopPart(loop, arguments, tasks)

    def _matrices(self, matrices: Matrices, slot: Slot | None = None) -> StoredMatrices:
        """Return matrices in their own tensor, or in that of a slot."""
        shape, own = self.places[matrices.tensor]
        first, stack, row = matrices.strides(shape, self.heads)
        return StoredMatrices(
            TensorSpec(matrices.shape(shape, self.heads), self.dtype),
            replace(slot or own, offset=first * self.nbytes),
            matrices.turned,
            stack,
            row,
        )
