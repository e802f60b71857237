"""Arithmetic of two tensors whose axes of one element repeat to fit the other's."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import Part, Slot, native_kernel, source, target
from mxrun.operator.property import Inferred, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.elementwise import (
    ADD,
    DIVIDE,
    GRADIENT,
    MULTIPLY,
    SUBTRACT,
    ArithmeticProperty,
    Pullback,
    served,
)
from mxrun.ops.reduce_loops import Kind, reduce_part
from mxrun.ops.strided import (
    Map,
    broadcast_axes,
    joint_layout,
    same_order,
)
from mxrun.ops.strided_map import strided_part


class BroadcastProperty(ArithmeticProperty):
    """output = rule(lhs, rhs): shapes are aligned at their last axes, and an axis that one side
    lacks, or has one element of, repeats along the other's.
    """

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """The output from both sides; of a side, what the output leaves no choice for."""
        (lhs, rhs), output = inputs, outputs[0]
        if lhs is None or rhs is None:
            return Inferred([lhs, rhs], [output], [])
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
        return Inferred([left[rank - len(lhs) :], right[rank - len(rhs) :]], [output], [])


def _unify_axis(
    left: int | None, right: int | None, out: int | None
) -> tuple[int | None, int | None, int | None] | None:
    """One axis of lhs, rhs and output, completed; None where the sizes cannot go together."""
    known = {size for size in (left, right) if size not in (None, 1)}
    if len(known) > 1:
        return None
    # An output given otherwise is a contradiction, which the caller finds.
    if known:
        (out,) = known
    if left == right == 1:
        out = 1
    # Where one side is 1, or the output is, the other has the output's size.
    if out is not None:
        left = out if left is None and (right == 1 or out == 1) else left
        right = out if right is None and (left == 1 or out == 1) else right
    return left, right, out


@register("broadcast_add", "broadcast_plus")
class BroadcastAdd(BroadcastProperty):
    """output = lhs + rhs with broadcasting. Backward reads the output's gradient only."""

    type_string = "broadcast_add"
    rule = ADD


@register("broadcast_sub", "broadcast_minus")
class BroadcastSubtract(BroadcastProperty):
    """output = lhs - rhs with broadcasting. Backward reads the output's gradient only."""

    type_string = "broadcast_sub"
    rule = SUBTRACT


@register("broadcast_mul")
class BroadcastMultiply(BroadcastProperty):
    """output = lhs * rhs with broadcasting. Backward reads the output's gradient and both sides."""

    type_string = "broadcast_mul"
    rule = MULTIPLY


@register("broadcast_div")
class BroadcastDivide(BroadcastProperty):
    """output = lhs / rhs with broadcasting. Backward reads the output's gradient and both sides."""

    type_string = "broadcast_div"
    rule = DIVIDE


@implement("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", backend="jit")
class CompiledBroadcast(Implementation):
    """Strided loops in float32, in the layout of a side that has the output's shape."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The rule in one pass."""
        assert isinstance(prop, ArithmeticProperty)
        if OpReqType.NULL in request.requests or not served(*request.inputs):
            return None
        output = joint_layout(request.outputs[0], request.inputs)
        sides = tuple(spec.laid_out(output.layout) for spec in request.inputs)
        operands = [(source(index), spec) for index, spec in enumerate(sides)]
        return native_kernel(
            self.name,
            [strided_part(prop.rule.compiled, (target(0), output), operands, request.threads)],
            sides,
            (output,),
            request.requests,
            request.threads,
            flops=output.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Each side's gradient as a map, summed where the side repeats."""
        assert isinstance(prop, ArithmeticProperty)
        (gradient,), threads = request.out_grad, request.threads
        assert gradient is not None
        full = joint_layout(gradient, [gradient, *request.in_grad])
        repeated = [broadcast_axes(spec, full.shape) for spec in request.in_grad]
        if not all(same_order(full, axes) for axes in repeated):
            full = full.laid_out(PLAIN)
        specs = [full, *(spec.laid_out(full.layout) for spec in request.in_grad)]
        asked = [side for side in (1, 0) if request.requests[side] is not OpReqType.NULL]
        read = prop.rule.reads(*asked)
        return native_kernel(
            self.name,
            [
                _gradient(prop.rule.pullbacks[side], target(side), specs, repeated[side], threads)
                for side in asked
            ],
            (*(spec if place in read else None for place, spec in enumerate(specs)), None),
            tuple(specs[1 + side] if side in asked else None for side in (0, 1)),
            request.requests,
            threads,
            flops=2 * len(asked) * full.elements,
        )


def _gradient(
    pullback: Pullback,
    output: Slot,
    specs: Sequence[TensorSpec],
    repeated: Sequence[int],
    threads: int,
) -> Part:
    """The gradient of one side; specs: of out_grad, lhs and rhs; repeated: the axes to sum."""
    full = specs[GRADIENT]
    operands = [(source(place), specs[place]) for place in pullback.reads]
    if not repeated:
        return strided_part(pullback.compiled, (output, full), operands, threads, pullback.factor)
    if pullback.compiled is Map.SCALE:
        data = (source(GRADIENT), full)
        return reduce_part(Kind.SUM, output, data, repeated, threads, pullback.factor)
    product = (between(0), full)
    return ChainPart(
        (
            strided_part(pullback.compiled, product, operands, threads, pullback.factor),
            reduce_part(Kind.SUM, output, product, repeated, threads),
        ),
        (full.nbytes,),
    )
