"""Masking and reversing of sequences, in float32 or bfloat16."""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments, Floats, Int32s, Integer, Real
from mxrun.codegen.jit import native
from mxrun.codegen.loops import runs_of_task, vectors
from mxrun.codegen.vectors import lanes, load_lanes
from mxrun.ops.vector_stores import put_lanes


class Sequences(Arguments):
    """Data [steps, batch, columns], or [batch, steps, columns] with axis 1.

    holds: whether steps after the end of a sequence are its last step, if it has one.
    lengths: None if all sequences have full length. reverses: whether the steps of a sequence are
    reversed, else those after its end have the value. is_added: whether the result is added.
    """

    axis: Integer
    steps: Integer
    batch: Integer
    columns: Integer
    lengths: Int32s
    data: Floats
    output: Floats
    reverses: Integer
    holds: Integer
    value: Real
    is_added: Integer


@native
def sequence_loop(call: Sequences) -> None:
    """output[t, n] = data[length[n] - 1 - t, n] or data[t, n] for t < length[n].

    After the end it is data[t, n] if the steps are reversed, data[length[n] - 1, n] if the last
    one holds, else the value.
    """
    columns, filler = call.columns, lanes(call.value)
    for row, _, at, width in runs_of_task(call.steps * call.batch, columns):
        step, sequence, stride = row // call.batch, row % call.batch, call.batch
        if call.axis == 1:
            step, sequence, stride = row % call.steps, row // call.steps, 1
        length = call.steps
        if call.lengths is not None:
            length = min(max(call.lengths[sequence], 0), call.steps)
        read = at
        if call.reverses and step < length:
            read += (length - 1 - 2 * step) * stride * columns
        masked = call.reverses == 0 and step >= length
        if masked and call.holds and length > 0:
            masked = False
            read += (length - 1 - step) * stride * columns
        for j, count in vectors(0, width):
            value = filler
            if not masked:
                value = load_lanes(call.data, read + j, count)
            put_lanes(call.output, at + j, value, count, call.is_added != 0)
