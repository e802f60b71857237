"""Compiled loops for simple operators that are maps: one pass per computed tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mxrun.backend.scalar_value import MAP_DTYPES
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec, unpacked
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.simple_entry import Formula
from mxrun.operator.simple_property import SimpleProperty, select_inputs

# Types that a float32 map reads and writes: it computes in float32 and rounds the result once.
_FLOATS = (FLOAT32, BFLOAT16)


class MapImplementation(Implementation):
    """Serve every request in one pass, without temporaries, in the layout of the given tensors.

    Each tensor may be bfloat16 or float32. Declines types that maps are not compiled for, and types
    that a function of the operator is not defined for.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output = forward(inputs), in the first input's layout."""
        assert isinstance(prop, SimpleProperty)
        entry, spec = prop.entry, unpacked(request.inputs[0])
        formulas = (entry.forward, *entry.computed)
        inputs = [_stored_as(spec, tensor) for tensor in request.inputs]
        alike = all(
            own.dtype == given.dtype for own, given in zip(inputs, request.inputs, strict=True)
        )
        if not alike or not all(_serves(formula, _computed_in(spec)) for formula in formulas):
            return None
        output = _stored_as(spec, request.outputs[0])
        part = map_part(
            entry.forward,
            prop.parameters,
            (target(0), output),
            [(source(index), own) for index, own in enumerate(inputs)],
            request.requests,
            request.threads,
        )
        read = zip(inputs, entry.forward.reads, strict=True)
        return native_kernel(
            self.name,
            [part],
            tuple(own if reads else None for own, reads in read),
            (output,),
            without_add_requests(request.requests),
            request.threads,
            flops=spec.elements,
            adding=adding(partial(self.prepare_forward, prop), request, (0,)),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare each requested gradient, in out_grad's layout; the first input's gradient is
        last.
        """
        assert isinstance(prop, SimpleProperty)
        entry, (gradient,) = prop.entry, request.out_grad
        assert gradient is not None
        spec, requests, threads = unpacked(gradient), request.requests, request.threads
        sources = [
            (source(index), _stored_as(spec, given or spec))
            for index, given in enumerate((gradient, *request.in_data, *request.out_data))
        ]
        operands = select_inputs(entry.reads, sources[0], sources[1:-1], sources[-1])
        gradients = [_stored_as(spec, given) for given in request.in_grad]
        parts, read = [], set[Slot]()
        for side in reversed(range(len(gradients))):
            formula = entry.gradients[side]
            if isinstance(formula, Formula) and requests[side] is not OpReqType.NULL:
                pairs = zip(operands, formula.reads, strict=True)
                read |= {slot for (slot, _), reads in pairs if reads}
                place = (target(side), gradients[side])
                parts.append(map_part(formula, prop.parameters, place, operands, requests, threads))
        return native_kernel(
            self.name,
            parts,
            tuple(own if slot in read else None for slot, own in sources),
            tuple(gradients),
            without_add_requests(requests),
            threads,
            flops=len(parts) * spec.elements,
            adding=adding(partial(self.prepare_backward, prop), request, range(len(gradients))),
        )


def _computed_in(spec: TensorSpec) -> str:
    """Return the dtype in which a map of this tensor computes: float32 for bfloat16."""
    return FLOAT32 if spec.dtype == BFLOAT16 else spec.dtype


def _stored_as(spec: TensorSpec, given: TensorSpec) -> TensorSpec:
    """Return `spec` with given's dtype if both are float32 or bfloat16, else `spec`."""
    both = spec.dtype in _FLOATS and given.dtype in _FLOATS
    return replace(spec, dtype=given.dtype) if both else spec


def map_part(
    formula: Formula,
    parameters: Parameters,
    output: tuple[Slot, TensorSpec],
    operands: Sequence[tuple[Slot, TensorSpec]],
    requests: Sequence[OpReqType],
    threads: int,
) -> LoopPart:
    """Return the loop output = formula(operands).

    All tensors have one spec, except that float32 and bfloat16 may be mixed. `requests` holds the
    requests of all outputs of the kernel.
    """
    slot, spec = output
    # A tensor that the map does not read may be absent: its address is then the output's.
    read = [
        operand if reads else output for operand, reads in zip(operands, formula.reads, strict=True)
    ]
    return formula.kernel(_computed_in(spec)).part(
        slot,
        tuple(place for place, _ in read),
        spec.elements,
        formula.values(parameters),
        threads=threads,
        request=requests[slot.index],
        stored=[own.dtype for _, own in (output, *read)],
    )


def _serves(formula: Formula, dtype: str) -> bool:
    """Return whether the formula is a map that is defined for `dtype`."""
    if not formula.is_map or dtype not in MAP_DTYPES:
        return False
    try:
        formula.kernel(dtype)
    except UserError:
        return False
    return True
