"""Precision pass: dtype of every activation, bfloat16 or float32.

A product sums in float32 and rounds its output once to bfloat16. Elementwise operators after a
product inherit its dtype, and so does a view that requests no other. Losses, statistics, parameters
and their gradients are float32. The pass adds no step: where a kernel requires another dtype than
its input has, `select` inserts a reorder that converts. A gradient has the dtype of its value.

Needs: a forward graph before fusion and gradients. Provides: the dtypes of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError
from mxrun.graph.graph import STATES, Graph, MemoryClass, Step, Value
from mxrun.operator.property import Precision

# Memory classes that are always float32.
ALWAYS_FLOAT32 = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, *STATES)


def precision(graph: Graph, dtype: str) -> Graph:
    """Return the graph with dtypes assigned; `dtype` applies to steps that name none.

    Raises UserError for a step that requests bfloat16 but does not support it.
    """
    values = list(graph.values)
    for step in graph.steps:
        if step.prop is None:
            continue
        full = step.prop.precision is Precision.FLOAT32 and not step.prop.is_view
        if full and step.options.precision == BFLOAT16:
            raise UserError(
                Diagnostic(
                    f"{step.title} does not run in bfloat16",
                    step.place,
                    expected=FLOAT32,
                    got=step.options.precision,
                    hint="leave out its `precision`: it runs in float32 beside others in bfloat16",
                )
            )
        output = step.outputs[0]
        if output is None or values[output].spec.dtype != FLOAT32:
            continue
        if _is_low(step, values, step.options.precision or dtype):
            spec = replace(values[output].spec, dtype=BFLOAT16)
            values[output] = replace(values[output], spec=spec)
    return replace(graph, values=tuple(values))


def _is_low(step: Step, values: Sequence[Value], dtype: str) -> bool:
    assert step.prop is not None
    arguments = step.inputs[: len(step.prop.list_arguments())]
    reads = [values[value] for value in arguments if value is not None]
    if step.prop.is_view:
        return reads[0].spec.dtype == BFLOAT16 and step.options.precision != FLOAT32
    kind = step.prop.precision
    if dtype != BFLOAT16 or kind is not Precision.INHERIT:
        return dtype == BFLOAT16 and kind is Precision.BFLOAT16
    # Indices and lengths decide nothing.
    types = {value.spec.dtype for value in reads if value.memory_class not in ALWAYS_FLOAT32}
    types = {dtype for dtype in types if "float" in dtype}
    return step.options.precision == BFLOAT16 or types == {BFLOAT16}
