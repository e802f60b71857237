"""Which activations are kept in bfloat16.

The sums of a product are float32 and its output is rounded once; what follows a product and only
maps elements goes on in the same type, and a view has the type of what it reads; losses,
statistics, parameters and their gradients are float32. No step is added: where a kernel wants
another type than lies there, `select` plans a reorder, which converts. A gradient has the type of
its value.

Needs: a forward graph before fusion and gradients. Provides: the types of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError
from mxrun.graph.graph import Graph, MemoryClass, Step, Value
from mxrun.operator.property import Precision

# What is float32 whoever reads it.
KEPT_WIDE = (MemoryClass.PARAMETERS, MemoryClass.AUXILIARY, MemoryClass.OPTIMIZER)


def precision(graph: Graph, wanted: str) -> Graph:
    """The same graph with types; `wanted` is for steps that name none.

    Raises UserError for a step that names bfloat16 and does not know it.
    """
    values = list(graph.values)
    for step in graph.steps:
        if step.prop is None:
            continue
        full = step.prop.precision is Precision.FLOAT32 and not step.prop.is_view
        if full and step.precision == BFLOAT16:
            raise UserError(
                Diagnostic(
                    f"{step.title} does not run in bfloat16",
                    step.place,
                    expected=FLOAT32,
                    got=step.precision,
                    hint="leave out its `precision`: it runs in float32 beside others in bfloat16",
                )
            )
        output = step.outputs[0]
        if output is None or values[output].spec.dtype != FLOAT32:
            continue
        if _is_low(step, values, step.precision or wanted):
            spec = replace(values[output].spec, dtype=BFLOAT16)
            values[output] = replace(values[output], spec=spec)
    return replace(graph, values=tuple(values))


def _is_low(step: Step, values: Sequence[Value], wanted: str) -> bool:
    assert step.prop is not None
    arguments = step.inputs[: len(step.prop.list_arguments())]
    reads = [values[value] for value in arguments if value is not None]
    if step.prop.is_view:
        return reads[0].spec.dtype == BFLOAT16
    kind = step.prop.precision
    if wanted != BFLOAT16 or kind is not Precision.INHERIT:
        return wanted == BFLOAT16 and kind is Precision.BFLOAT16
    types = {value.spec.dtype for value in reads if value.memory_class not in KEPT_WIDE}
    return step.precision == BFLOAT16 or types == {BFLOAT16}
