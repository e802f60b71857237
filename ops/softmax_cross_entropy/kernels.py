"""softmax_cross_entropy in compiled loops, for float32 data and int32 labels."""

from __future__ import annotations

from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    LoopPart,
    Scratch,
    extra,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.loss import gradient_kernel
from mxrun.ops.softmax_cross_entropy.loops import (
    EntropyGradient,
    EntropySum,
    RowEntropies,
    entropies_loop,
    entropy_sum_loop,
    gradient_loop,
)

_WORD = 8


@implement("softmax_cross_entropy", backend="jit")
class CompiledSoftmaxCrossEntropy(Implementation):
    """Two passes over data in forward and one in backward; no probabilities are stored."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the entropies, then their sum as one task, in sample order."""
        data, label = (spec.with_layout(PLAIN) for spec in request.inputs[:2])
        served = (data.dtype, label.dtype) == ("float32", "int32") and data.elements > 0
        if not served or OpReqType.NULL in request.requests:
            return None
        tasks = request.device.tasks_for_elements(data.elements)
        entropies, scratch = Scratch(), _WORD * label.elements
        rows = RowEntropies(
            **_rows(prop, data, label),
            label=source(1),
            weight=source(2) if len(request.inputs) == 3 else None,
            data=source(0),
            statistics=extra(0),
            entropies=entropies,
        )
        total = EntropySum(samples=label.elements, entropies=entropies, loss=target(0))
        return native_kernel(
            self.name,
            [
                LoopPart(entropies_loop, rows, tasks, scratch),
                LoopPart(entropy_sum_loop, total, 1, scratch),
            ],
            (data, label, *request.inputs[2:]),
            request.outputs,
            request.requests,
            request.device,
            extra_outputs=(TensorSpec((label.elements, 2)),),
            flops=5 * data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient, row by row."""
        (gradient,), (data, label, *_) = request.out_grad, request.in_data
        assert data is not None
        assert label is not None
        arguments = len(request.in_data)
        tasks = request.device.tasks_for_elements(data.elements)
        rows = EntropyGradient(
            **_rows(prop, data, label),
            label=source(2),
            weight=source(3) if arguments == 3 else None,
            data=source(1),
            statistics=source(2 + arguments),
            scale=float(prop.parameters.grad_scale),
            head=None if gradient is None else source(0),
            gradient=target(0),
        )
        part = LoopPart(gradient_loop, rows, tasks)
        return gradient_kernel(part, request, 5 * data.elements)


def _rows(prop: AnyProperty, data: TensorSpec, label: TensorSpec) -> dict[str, int]:
    """Return the loops' common arguments that are numbers, by name."""
    p = prop.parameters
    return {
        "samples": label.elements,
        "classes": data.shape[-1],
        "samples_per_weight": label.elements // label.shape[0],
        "is_ignoring": int(p.use_ignore),
        "ignored": int(p.ignore_label),
    }
