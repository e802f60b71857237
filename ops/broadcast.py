"""Binary operators with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator.incremental import SequenceArguments
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target
from mxrun.operator.operator import Operator
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.operator.simple import NoParameters, SimpleProperty, register_entry
from mxrun.operator.simple_entry import Array, Formula
from mxrun.operator.simple_property import SimpleOperator
from mxrun.ops.binary import BINARY
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import copy_part
from mxrun.ops.reduce.loops import ReductionKind, reduce_part
from mxrun.ops.strided import broadcast_axes, joint_layout, same_order
from mxrun.ops.strided_map import strided_part
from mxrun.ops.sums import sum_over

_SERVED = {FLOAT32, BFLOAT16}


class BroadcastProperty(SimpleProperty[NoParameters]):
    """output = map(lhs, rhs) with broadcasting: shapes are aligned at their last axes, and an axis
    that one side lacks, or along which it has size 1, is broadcast to the other side's size.
    """

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output from both sides, and a side's axes where the output determines them."""
        (lhs, rhs), output = inputs, outputs[0]
        if lhs is None or rhs is None:
            return PartialInference([lhs, rhs], [output], [])
        rank = max(len(lhs), len(rhs))
        output = unify("output", output, (None,) * rank, "the longer of lhs and rhs")
        wide = [(1,) * (rank - len(side)) + side for side in (lhs, rhs)]
        axes = [
            _unify_axis(left, right, out) for left, right, out in zip(*wide, output, strict=True)
        ]
        if None in axes:
            expected = "equal sizes or 1 on every axis, the last ones aligned"
            raise ShapeContradiction("rhs", show(rhs), expected, f"lhs {show(lhs)}")
        left, right, out = (tuple(sizes) for sizes in zip(*filter(None, axes), strict=True))
        output = unify("output", output, out, "the larger size of lhs and rhs on every axis")
        return PartialInference([left[rank - len(lhs) :], right[rank - len(rhs) :]], [output], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of both sides, of which one may have one element for all positions."""
        rank = max(map(len, sequences.shapes))
        aligned = [
            axis if axis is None else axis + rank - len(shape)
            for axis, shape in zip(sequences.axes, sequences.shapes, strict=True)
        ]
        found = next((axis for axis in aligned if axis is not None), None)
        for axis, shape in zip(aligned, sequences.shapes, strict=True):
            own = (1,) * (rank - len(shape)) + shape
            if found is None or (axis != found and (axis is not None or own[found] != 1)):
                return None
        return found

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Broadcast(self.entry, self.parameters)


def _unify_axis(
    left: int | None, right: int | None, out: int | None
) -> tuple[int | None, int | None, int | None] | None:
    """Complete one axis of lhs, rhs and output; None if the sizes cannot be broadcast."""
    known = {size for size in (left, right) if size not in (None, 1)}
    if len(known) > 1:
        return None
    # A different given output size is a contradiction, which the caller reports.
    if known:
        (out,) = known
    if left == right == 1:
        out = 1
    # Where one side or the output has size 1, the other side has the output's size.
    if out is not None:
        left = out if left is None and (right == 1 or out == 1) else left
        right = out if right is None and (left == 1 or out == 1) else right
    return left, right, out


class Broadcast(SimpleOperator):
    """NumPy body; a gradient is summed over the axes along which its side was broadcast."""

    def shaped(self, gradient: Array | np.generic, shape: Shape) -> Array:
        """Sum the gradient over the axes along which a tensor of `shape` was broadcast."""
        full = np.asarray(gradient)
        missing = full.ndim - len(shape)
        repeated = (axis for axis, size in enumerate(shape, missing) if size == 1)
        return sum_over(full, (*range(missing), *repeated)).reshape(shape)


class CompiledBroadcast(Implementation):
    """Strided maps, in the layout of a side that has the output's shape.

    The output and a side of its shape may be bfloat16; a side that is broadcast is float32.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the map, in one pass."""
        assert isinstance(prop, BroadcastProperty)
        given = (*request.inputs, *request.outputs)
        is_served = request.outputs[0].elements and not {spec.dtype for spec in given} - _SERVED
        if OpReqType.NULL in request.requests or not is_served:
            return None
        output = joint_layout(request.outputs[0], request.inputs)
        sides = tuple(_side(spec, output) for spec in request.inputs)
        operands = [(source(index), spec) for index, spec in enumerate(sides)]
        part = strided_part(
            prop.entry.forward.traced,
            [target(0)],
            output,
            operands,
            request.device,
            requests=request.requests,
        )
        return native_kernel(
            self.name,
            [part],
            sides,
            (output,),
            without_add_requests(request.requests),
            request.device,
            flops=output.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare each side's gradient as a map, summed over its broadcast axes."""
        assert isinstance(prop, BroadcastProperty)
        (gradient,), device = request.out_grad, request.device
        assert gradient is not None
        full = joint_layout(gradient, [gradient, *request.in_grad])
        repeated = [broadcast_axes(spec, full.shape) for spec in request.in_grad]
        if not all(same_order(full, axes) for axes in repeated):
            full = full.with_layout(PLAIN)
        specs = [full, *(_side(spec, full) for spec in request.in_grad)]
        gradients = tuple(spec.with_layout(full.layout) for spec in request.in_grad)
        parts, read, requests = list[KernelPart](), set[int](), list(request.requests)
        for side in (1, 0):
            formula, place = prop.entry.gradients[side], target(side)
            if not isinstance(formula, Formula) or requests[side] is OpReqType.NULL:
                continue
            read |= {index for index, reads in enumerate(formula.reads) if reads}
            written, given = gradients[side], requests[side]
            if repeated[side]:
                axes = repeated[side]
                parts.append(_summed(formula, place, written, specs, axes, device, given))
            else:
                parts.append(_map(formula, place, written, specs, device, given))
            # A float32 sum is added by the kernel.
            if not repeated[side] or written.dtype != FLOAT32:
                (requests[side],) = without_add_requests([given])
        return native_kernel(
            self.name,
            parts,
            (*(spec if index in read else None for index, spec in enumerate(specs)), None),
            gradients,
            requests,
            device,
            flops=2 * len(parts) * full.elements,
        )


def _side(spec: TensorSpec, full: TensorSpec) -> TensorSpec:
    """Return a side as the maps read it: float32 if it is broadcast, in the output's layout."""
    dtype = spec.dtype if spec.shape == full.shape else FLOAT32
    return replace(spec.with_layout(full.layout), dtype=dtype)


def _map(
    formula: Formula,
    output: Slot,
    written: TensorSpec,
    specs: Sequence[TensorSpec],
    device: DeviceDescription,
    request: OpReqType = OpReqType.WRITE,
) -> KernelPart:
    """Return an unreduced gradient; specs: those of out_grad, lhs and rhs."""
    # A tensor that the map does not read may be absent: the output replaces it.
    operands = [
        (source(index), spec) if reads else (output, written)
        for index, (spec, reads) in enumerate(zip(specs, formula.reads, strict=True))
    ]
    return strided_part(formula.traced, [output], written, operands, device, requests=[request])


def _summed(
    formula: Formula,
    output: Slot,
    written: TensorSpec,
    specs: Sequence[TensorSpec],
    repeated: Sequence[int],
    device: DeviceDescription,
    request: OpReqType,
) -> KernelPart:
    """Return the gradient of a side that is broadcast along the axes `repeated`.

    The sum is float32; it is rounded once if the gradient, of the spec `written`, is bfloat16.
    """
    full, wide = specs[0], replace(specs[0], dtype=FLOAT32)
    is_low, is_mapped = written.dtype != FLOAT32, any(formula.reads[1:]) or full.dtype != FLOAT32
    total, count = between(1) if is_low else output, written.elements
    parts: list[KernelPart] = []
    if is_mapped:
        parts.append(_map(formula, between(0), wide, specs, device))
    data = (between(0), wide) if is_mapped else (source(0), full)
    parts.append(reduce_part(ReductionKind.SUM, total, data, repeated, device))
    if not is_mapped and not formula.passes_first:
        # A gradient that depends on out_grad only is a multiple of it, so the sum comes first.
        operands = (total,) * len(formula.reads)
        parts.append(formula.traced.part(total, operands, count, device=device))
    if is_low:
        kinds = (written.dtype, FLOAT32)
        parts.append(copy_part(total, output, count, device, request, kinds))
    return ChainPart(tuple(parts), (wide.nbytes * is_mapped, 4 * count * is_low))


# Further names in older MXNet models.
_ALIASES = {"add": "broadcast_plus", "sub": "broadcast_minus"}
# In other frameworks.
_FOREIGN = {"maximum": "maximum", "minimum": "minimum", "power": "pow power"}

for _name, _definition in BINARY.items():
    register_entry(
        f"broadcast_{_name}",
        *((_ALIASES[_name],) if _name in _ALIASES else ()),
        entry=_definition.entry,
        description=_definition.describe(_definition.entry, "lhs", "rhs", ", with broadcasting"),
        foreign={f"broadcast_{_name}: {{lhs: a, rhs: b}}": _FOREIGN.get(_name, "")},
        base=BroadcastProperty,
        loops=CompiledBroadcast,
    )
