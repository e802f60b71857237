"""Steps of one direction of a layer as compiled loops.

The tasks divide the sequences of the batch: each runs all steps of its own sequences, so that no
thread waits for another. At each step it multiplies the states of up to PANEL_ROWS
sequences by panels of the recurrent weight, then applies a map to each sequence's row. Nothing
depends on the tasks, because every sum has the same order for any number of rows.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.arguments import (
    Float32s,
    Floats,
    Int32s,
    Integer,
    Table,
)
from mxrun.codegen.intrinsics import integer, run_map, share
from mxrun.codegen.jit import compact, inlined, native
from mxrun.codegen.vectors import (
    LANES,
    PANEL_COLUMNS,
    PANEL_ROWS,
    load_lanes,
    multiply_pair_panel,
    multiply_panel,
    store_lanes,
)
from mxrun.ops.map_block import MapBlocks, own_block
from mxrun.ops.rows import clear

# Words of a thread's scratch space: the argument block of a map.
WORDS_PER_WORKER = 32
# Index of a row of a map's tensor: of the step, of the step that forward runs before it, of the
# sequence in the batch, or of the step among those of the sequence's mask.
STEP, PRECEDING, SEQUENCE, MASK = 0, 1, 2, 3
# Words before the tensors of a map in the table: number, elements, tensors, parameters.
MAP_HEADER = 4
# Words of one tensor: address, bytes from row to row, index of the row.
TENSOR_WORDS = 3


class SequenceSteps(MapBlocks):
    """Steps of one direction of a layer.

    The row of step t of sequence n is t * step_stride + n * batch_stride. is_reversed: whether the
    last step runs first. lengths: None if all sequences have full length. mask_stride: rows of the
    mask from sequence to sequence. maps: all maps, see `run_row`.

    hidden: elements of a state, size: of what is projected. panels: the recurrent weight's for
    `columns` of the `width` columns of a row's products; other_panels: its others, for `size`
    columns, or None if there are none; projection_panels: None without a projection. start, step,
    projecting, hold: where the maps begin, and their numbers: before the first step, at each step,
    of a projection, after a sequence's end.
    """

    steps: Integer
    batch: Integer
    step_stride: Integer
    batch_stride: Integer
    is_reversed: Integer
    lengths: Int32s
    mask_stride: Integer
    maps: Table
    width: Integer
    size: Integer
    hidden: Integer
    columns: Integer
    panels: Float32s
    other_panels: Float32s
    projection_panels: Float32s
    start: Integer
    start_count: Integer
    step: Integer
    projecting: Integer
    hold: Integer
    hold_count: Integer


@inlined
def run_row(call: SequenceSteps, own: int, at: int, row: int, n: int, t: int) -> int:
    """Run the map at `at` of the table on one row of each of its tensors; return where it ends.

    A map is: its number, the elements of a row, the numbers of tensors and of parameters; for each
    tensor its address, the bytes from row to row, and which row; then the parameters.
    """
    tensors, parameters = integer(call.maps, at + 2), integer(call.maps, at + 3)
    call.words[own] = integer(call.maps, at + 1)
    place, to = at + MAP_HEADER, own + 1
    for tensor in range(tensors):
        kind, index = integer(call.maps, place + 2), row
        if kind == PRECEDING:
            index = row - call.step_stride
            if call.is_reversed:
                index = row + call.step_stride
        if kind == SEQUENCE:
            index = n
        if kind == MASK:
            index = n * call.mask_stride + t
        address = integer(call.maps, place)
        call.words[to + tensor] = address + index * integer(call.maps, place + 1)
        place += TENSOR_WORDS
    for parameter in range(parameters):
        call.words[to + tensors + parameter] = integer(call.maps, place + parameter)
    run_map(call, integer(call.maps, at), call.words, own)
    return place + parameters


@inlined
def run_maps(call: SequenceSteps, own: int, at: int, count: int, row: int, n: int, t: int) -> None:
    """Run `count` maps that stand one after the other in the table."""
    for _ in range(count):
        at = run_row(call, own, at, row, n, t)


@inlined
def rows_at_a_time(count: int) -> int:
    """Return the rows of one product, so that all products have about as many."""
    blocks = max((count + PANEL_ROWS - 1) // PANEL_ROWS, 1)
    return (count + blocks - 1) // blocks


@inlined
def is_valid(call: SequenceSteps, t: int, n: int) -> bool:
    """Return whether a step lies before its sequence's end."""
    valid = True
    if call.lengths is not None:
        valid = t < call.lengths[n]
    return valid


@inlined
def any_valid(call: SequenceSteps, t: int, first: int, rows: int) -> bool:
    """Return whether a step lies before the end of any of neighbouring sequences."""
    found = False
    for n in range(first, first + rows):
        found = found or is_valid(call, t, n)
    return found


@inlined
def multiply(
    product: Any,
    output: Any,
    at: int,
    stride: int,
    rows: int,
    left: Any,
    position: int,
    step: int,
    inner: int,
    panels: Any,
    columns: int,
) -> None:
    """Add the product of rows with all panels of a weight; product: that of one panel."""
    for first in range(0, columns, PANEL_COLUMNS):
        product(
            output,
            at + first,
            stride,
            rows,
            left,
            position,
            step,
            inner,
            panels,
            first * inner,
            columns - first,
        )


class ForwardSteps(SequenceSteps):
    """Arguments of `forward_loop`.

    products [rows, width]: the input's product and biases, of which `columns` receive the states'
    product with `panels`. others [batch, size]: the rest of that product, with a bias of its own;
    None if there is none. state [batch, hidden]: the state before a step, then that after it. inner
    [batch, size], projected [batch, hidden]: what is projected, and its product with the
    projection's panels. finish: where the maps after the last step begin, and their number.
    """

    products: Float32s
    others: Float32s
    other_bias: Float32s
    state: Floats
    inner: Floats
    projected: Float32s
    finish: Integer
    finish_count: Integer


@inlined
def multiply_states(call: ForwardSteps, product: Any, row: int, first: int, rows: int) -> None:
    """Add the products of the states before a step of neighbouring sequences."""
    stride, width, size, hidden = call.batch_stride, call.width, call.size, call.hidden
    multiply(
        product,
        call.products,
        row * width,
        stride * width,
        rows,
        call.state,
        first * hidden,
        hidden,
        hidden,
        call.panels,
        call.columns,
    )
    if call.others is not None:
        for n in range(first, first + rows):
            for j in range(0, size, LANES):
                bias = load_lanes(call.other_bias, j, size - j)
                store_lanes(call.others, n * size + j, bias, size - j)
        multiply(
            product,
            call.others,
            first * size,
            size,
            rows,
            call.state,
            first * hidden,
            hidden,
            hidden,
            call.other_panels,
            size,
        )


@inlined
def run_projecting(call: SequenceSteps, own: int, t: int, row: int, first: int, rows: int) -> None:
    """Run the maps of the projection at a step of neighbouring sequences."""
    for n in range(first, first + rows):
        if is_valid(call, t, n):
            here = row + (n - first) * call.batch_stride
            run_row(call, own, call.projecting, here, n, t)


@inlined
def project(
    call: ForwardSteps, product: Any, own: int, t: int, row: int, first: int, n: int
) -> None:
    """Multiply the results of a step of `n` sequences by the projection."""
    clear(call.projected, first * call.hidden, n * call.hidden)
    multiply(
        product,
        call.projected,
        first * call.hidden,
        call.hidden,
        n,
        call.inner,
        first * call.size,
        call.size,
        call.size,
        call.projection_panels,
        call.hidden,
    )
    run_projecting(call, own, t, row, first, n)


@inlined
def run_forward(call: ForwardSteps, product: Any) -> None:
    """Run all steps of the thread's sequences, some sequences at a time."""
    own = own_block(call)
    begin, end = share(call.batch * 16)
    begin, end = begin // 16, end // 16
    most, stride = rows_at_a_time(end - begin), call.batch_stride
    for n in range(begin, end):
        run_maps(call, own, call.start, call.start_count, 0, n, 0)
    for first in range(begin, end, max(most, 1)):
        rows = min(most, end - first)
        for place in range(call.steps):
            t = place
            if call.is_reversed:
                t = call.steps - 1 - place
            row = t * call.step_stride + first * stride
            runs = any_valid(call, t, first, rows)
            if runs:
                multiply_states(call, product, row, first, rows)
            for n in range(first, first + rows):
                here = row + (n - first) * stride
                if is_valid(call, t, n):
                    run_row(call, own, call.step, here, n, t)
                else:
                    run_maps(call, own, call.hold, call.hold_count, here, n, t)
            if call.projected is not None and runs:
                project(call, product, own, t, row, first, rows)
    for n in range(begin, end):
        run_maps(call, own, call.finish, call.finish_count, 0, n, 0)


@compact
def forward_loop(call: ForwardSteps) -> None:
    """Run all steps of the thread's sequences."""
    run_forward(call, multiply_panel)


@native
def forward_pairs_loop(call: ForwardSteps) -> None:
    """Run all steps with panels of pairs of bfloat16 elements."""
    run_forward(call, multiply_pair_panel)


class BackwardSteps(SequenceSteps):
    """Arguments of `backward_loop`.

    h_grad [batch, hidden]: the gradient of the state, which begins with that of the last states and
    ends with that of the first ones. products [rows, width]: the gradient of the states' product,
    of which `columns` are multiplied with `panels`; others [rows, size]: the rest of it; None if
    there is none. total [rows, hidden], inner_grad [batch, size]: with a projection, the gradients
    of its result and of what is projected. first_step: where the map of the step begins that
    forward runs first.
    """

    products: Floats
    others: Floats
    h_grad: Float32s
    total: Floats
    inner_grad: Float32s
    first_step: Integer


@inlined
def project_gradients(
    call: BackwardSteps, product: Any, own: int, t: int, row: int, first: int, rows: int
) -> None:
    """Compute the gradients of what is projected at a step of neighbouring sequences."""
    run_projecting(call, own, t, row, first, rows)
    clear(call.inner_grad, first * call.size, rows * call.size)
    multiply(
        product,
        call.inner_grad,
        first * call.size,
        call.size,
        rows,
        call.total,
        row * call.hidden,
        call.batch_stride * call.hidden,
        call.hidden,
        call.projection_panels,
        call.size,
    )


@inlined
def multiply_gradients(call: BackwardSteps, product: Any, row: int, first: int, rows: int) -> None:
    """Add the gradients of the states before a step of neighbouring sequences."""
    stride, hidden = call.batch_stride, call.hidden
    multiply(
        product,
        call.h_grad,
        first * hidden,
        hidden,
        rows,
        call.products,
        row * call.width,
        stride * call.width,
        call.columns,
        call.panels,
        hidden,
    )
    if call.others is not None:
        multiply(
            product,
            call.h_grad,
            first * hidden,
            hidden,
            rows,
            call.others,
            row * call.size,
            stride * call.size,
            call.size,
            call.other_panels,
            hidden,
        )


@inlined
def run_backward(call: BackwardSteps, product: Any) -> None:
    """Run the gradients of all steps of the thread's sequences, the last step first."""
    own = own_block(call)
    begin, end = share(call.batch * 16)
    begin, end = begin // 16, end // 16
    most, stride = rows_at_a_time(end - begin), call.batch_stride
    for n in range(begin, end):
        run_maps(call, own, call.start, call.start_count, 0, n, 0)
    for first in range(begin, end, max(most, 1)):
        rows = min(most, end - first)
        for place in range(call.steps):
            t = call.steps - 1 - place
            if call.is_reversed:
                t = place
            row = t * call.step_stride + first * stride
            for n in range(first, first + rows):
                if not is_valid(call, t, n):
                    here = row + (n - first) * stride
                    run_maps(call, own, call.hold, call.hold_count, here, n, t)
            if not any_valid(call, t, first, rows):
                continue
            if call.total is not None:
                project_gradients(call, product, own, t, row, first, rows)
            step = call.step
            if place == call.steps - 1:
                step = call.first_step
            for n in range(first, first + rows):
                if is_valid(call, t, n):
                    here = row + (n - first) * stride
                    run_row(call, own, step, here, n, t)
            multiply_gradients(call, product, row, first, rows)


@compact
def backward_loop(call: BackwardSteps) -> None:
    """Run the gradients of all steps of the thread's sequences."""
    run_backward(call, multiply_panel)


@native
def backward_pairs_loop(call: BackwardSteps) -> None:
    """Run the gradients with panels of pairs of bfloat16 elements."""
    run_backward(call, multiply_pair_panel)
