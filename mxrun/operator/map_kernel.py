"""Simple operators whose functions are maps, as compiled loops: one pass for each tensor made."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.backend.scalar_value import MAP_DTYPES
from mxrun.base.errors import UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec, unpacked
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.operator.scalar import written
from mxrun.operator.simple_entry import Formula
from mxrun.operator.simple_property import SimpleProperty, read_by


class MapImplementation(Implementation):
    """Every request in one pass without a temporary, in whatever layout the tensors come.

    Declines what no map has: another type than maps are compiled for, or one that a function of
    the operator is not defined for.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """output = forward(inputs), in the first input's layout."""
        assert isinstance(prop, SimpleProperty)
        entry, spec = prop.entry, unpacked(request.inputs[0])
        formulas = (entry.forward, *entry.computed)
        alike = all(tensor.dtype == spec.dtype for tensor in request.inputs)
        if not alike or not all(_serves(formula, spec.dtype) for formula in formulas):
            return None
        slots = [source(index) for index in range(len(request.inputs))]
        part = map_part(
            entry.forward,
            prop.parameters,
            target(0),
            slots,
            spec,
            request.requests,
            request.threads,
        )
        return native_kernel(
            self.name,
            [part],
            tuple(spec if read else None for read in entry.forward.reads),
            (spec,),
            written(request.requests),
            request.threads,
            flops=spec.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Each gradient, in out_grad's layout; the first input's last."""
        assert isinstance(prop, SimpleProperty)
        entry, (gradient,) = prop.entry, request.out_grad
        assert gradient is not None
        spec, count = unpacked(gradient), len(request.in_data)
        sources = [source(index) for index in range(2 + count)]
        slots = read_by(entry.reads, sources[0], sources[1:-1], sources[-1])
        parts, read = [], set[Slot]()
        for side in reversed(range(count)):
            formula = entry.gradients[side]
            if isinstance(formula, Formula) and request.requests[side] is not OpReqType.NULL:
                read |= {slot for slot, reads in zip(slots, formula.reads, strict=True) if reads}
                place, requests = target(side), request.requests
                parts.append(
                    map_part(
                        formula, prop.parameters, place, slots, spec, requests, request.threads
                    )
                )
        return native_kernel(
            self.name,
            parts,
            tuple(spec if slot in read else None for slot in sources),
            (spec,) * count,
            written(request.requests),
            request.threads,
            flops=len(parts) * spec.elements,
        )


def map_part(
    formula: Formula,
    parameters: Parameters,
    output: Slot,
    operands: Sequence[Slot],
    spec: TensorSpec,
    requests: Sequence[OpReqType],
    threads: int,
) -> LoopPart:
    """output = formula(operands), all of one spec; the requests are those of all outputs."""
    # A tensor that the map does not read may be absent: the output stands in for its address.
    read = (
        operand if reads else output for operand, reads in zip(operands, formula.reads, strict=True)
    )
    return formula.kernel(spec.dtype).part(
        output,
        tuple(read),
        spec.elements,
        formula.values(parameters),
        threads=threads,
        request=requests[output.index],
    )


def _serves(formula: Formula, dtype: str) -> bool:
    """Whether the formula is a map that the type has."""
    if not formula.is_map or dtype not in MAP_DTYPES:
        return False
    try:
        formula.kernel(dtype)
    except UserError:
        return False
    return True
