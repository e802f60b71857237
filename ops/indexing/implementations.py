"""take, pick and one_hot in compiled loops."""

from __future__ import annotations

from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.forward_only import ForwardOnlyImplementation
from mxrun.ops.indexing.kernels import gather_kernel, is_served, scatter_kernel
from mxrun.ops.indexing.loops import CLIP, WRAP, OneHotRows, RowSelection, one_hot_loop
from mxrun.ops.indexing.operators import sizes_around

_MODES = {"clip": CLIP, "wrap": WRAP}


@implement("take", "pick", backend="jit")
class CompiledSelection(Implementation):
    """Copies of rows at int32 indices; an index that is an error is left to the NumPy body."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one copy of each row."""
        if prop.parameters.mode not in _MODES or not is_served(request):
            return None
        return gather_kernel(self.name, _selection(prop, *request.inputs), request)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one addition of each row."""
        indices = request.in_data[1]
        assert indices is not None
        return scatter_kernel(self.name, _selection(prop, request.in_grad[0], indices), request)


def _selection(prop: AnyProperty, data: TensorSpec, indices: TensorSpec) -> RowSelection:
    """Return the rows: of take, all elements behind the axis; of pick, single elements."""
    before, size, after = sizes_around(data.shape, prop.parameters.axis)
    count = indices.elements
    shared = {"size": size, "index_count": count, "mode": _MODES[prop.parameters.mode]}
    if prop.type_string == "pick":
        return RowSelection(rows=count, columns=1, inner=after, **shared)
    return RowSelection(rows=before * count, columns=after, count=count, **shared)


@implement("one_hot", backend="jit")
class CompiledOneHot(ForwardOnlyImplementation):
    """One pass over a float32 output, for int32 indices."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the rows."""
        indices, output = request.inputs[0], request.outputs[0].with_layout(PLAIN)
        if (indices.dtype, output.dtype) != ("int32", "float32"):
            return None
        rows = OneHotRows(
            count=indices.elements,
            depth=prop.parameters.depth,
            indices=source(0),
            on=float(prop.parameters.on_value),
            off=float(prop.parameters.off_value),
            output=target(0),
        )
        tasks = request.device.tasks_for_elements(output.elements)
        return self.plain_kernel(prop, request, [LoopPart(one_hot_loop, rows, tasks)])
