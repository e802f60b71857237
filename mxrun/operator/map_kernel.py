"""Compiled loops for simple operators that are maps: one pass forward, one backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec, unpacked
from mxrun.codegen.scalar_value import MAP_DTYPES
from mxrun.operator.kernel import (
    BackwardRequest,
    ForwardRequest,
    Kernel,
    OpReqType,
    adding,
)
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.simple_entry import Formula, joint
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
        sources = [(source(index), own) for index, own in enumerate(inputs)]
        outputs = [_stored_as(spec, request.outputs[0])]
        adds = adding(partial(self.prepare_forward, prop), request, (0,))
        return self._kernel(prop, request, {0: entry.forward}, sources, sources, outputs, adds)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare all requested gradients, in out_grad's layout."""
        assert isinstance(prop, SimpleProperty)
        entry, (gradient,) = prop.entry, request.out_grad
        assert gradient is not None
        spec = unpacked(gradient)
        sources = [
            (source(index), _stored_as(spec, given or spec))
            for index, given in enumerate((gradient, *request.in_data, *request.out_data))
        ]
        operands = select_inputs(entry.reads, sources[0], sources[1:-1], sources[-1])
        gradients = [_stored_as(spec, given) for given in request.in_grad]
        maps = {
            side: formula
            for side, formula in enumerate(entry.gradients)
            if isinstance(formula, Formula) and request.requests[side] is not OpReqType.NULL
        }
        adds = adding(partial(self.prepare_backward, prop), request, range(len(gradients)))
        return self._kernel(prop, request, maps, sources, operands, gradients, adds)

    def _kernel(
        self,
        prop: SimpleProperty[Any],
        request: ForwardRequest | BackwardRequest,
        maps: Mapping[int, Formula],
        inputs: Sequence[tuple[Slot, TensorSpec]],
        operands: Sequence[tuple[Slot, TensorSpec]],
        outputs: Sequence[TensorSpec],
        adds: Mapping[int, Callable[[], Kernel | None]],
    ) -> Kernel:
        """Return the kernel outputs[i] = maps[i](operands), in one pass.

        All tensors have one spec, except that float32 and bfloat16 may be mixed.
        """
        spec, requests, device = inputs[0][1], request.requests, request.device
        parts: list[LoopPart] = []
        read = set[Slot]()
        if maps:
            formula = joint(*maps.values())
            # A tensor that the map does not read may be absent: its place is then an output's.
            places = [(target(index), outputs[index]) for index in maps]
            pairs = list(zip(operands, formula.reads, strict=True))
            taken = [operand if reads else places[0] for operand, reads in pairs]
            read = {slot for (slot, _), reads in pairs if reads}
            part = formula.kernel(_computed_in(spec)).multi_output_part(
                [slot for slot, _ in places],
                [slot for slot, _ in taken],
                spec.elements,
                formula.values(prop.parameters),
                device=device,
                requests=[requests[index] for index in maps],
                stored=[own.dtype for _, own in (*places, *taken)],
            )
            parts.append(part)
        return native_kernel(
            self.name,
            parts,
            tuple(own if slot in read else None for slot, own in inputs),
            tuple(outputs),
            without_add_requests(requests),
            device,
            flops=len(maps) * spec.elements,
            adding=adds,
        )


def _computed_in(spec: TensorSpec) -> str:
    """Return the dtype in which a map of this tensor computes: float32 for bfloat16."""
    return FLOAT32 if spec.dtype == BFLOAT16 else spec.dtype


def _stored_as(spec: TensorSpec, given: TensorSpec) -> TensorSpec:
    """Return `spec` with given's dtype if both are float32 or bfloat16, else `spec`."""
    both = spec.dtype in _FLOATS and given.dtype in _FLOATS
    return replace(spec, dtype=given.dtype) if both else spec


def _serves(formula: Formula, dtype: str) -> bool:
    """Return whether the formula is a map that is defined for `dtype`."""
    if not formula.is_map or dtype not in MAP_DTYPES:
        return False
    try:
        formula.kernel(dtype)
    except UserError:
        return False
    return True
