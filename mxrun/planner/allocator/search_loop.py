"""Native loop of the placement search: one static order, one capacity, counted work.

A node is a block placed at its lowest free offset. Blocks are placed by ascending (offset, rank),
so the candidates of a node are found by one pass over the remaining blocks, without sorting and
without data from the node before. Changes are recorded on a trail, from which a failed node is
undone.

Where no remaining block crosses the border of two sections, the two sides are independent parts
that are solved one after the other. The changes of a solved part stay on the trail, so that they
are undone with the node above the parts.
"""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.jit import inlined, native

FOUND, IMPOSSIBLE, EXHAUSTED = 0, 1, 2

# Frame: the blocks of its part (range of the members) and its sections, both half-open; the key of
# the block it placed last; the length of the trail before that; whether no remaining block is live
# at the same time as that block; and the start of its parts that are not solved yet.
FIRST, LAST, LEFT, RIGHT, KEY_OFFSET, KEY_RANK, MARK, HATLESS, REST_FIRST, REST_LEFT = (
    *(0, 1, 2, 3, 4),
    *(5, 6, 7, 8, 9),
)
FRAME_SLOTS = 10

# Result: final status, nodes taken, and work in blocks and sections examined; also the number of
# changes on the trail, and the size of the smallest remaining block of the part.
STATUS, NODES_TAKEN, WORK_DONE, TRAIL_USED, MIN_SIZE = 0, 1, 2, 3, 4
RESULT_SLOTS = 5

# Fixed work of a node, in addition to what it examines.
_NODE_WORK = 200


class Attempt(Arguments):
    """Arguments of `search_loop`: limits, properties of blocks and sections, state of the search.

    nodes, work: limits. trail_entries: capacity of the trail. rank [count]: the static order. twin
    [count]: for each block the previous one in rank with equal size and lifetime, or -1. row_start
    [sections + 1], rows: the blocks of each section, section by section.

    lowest [count]: lowest free offset of each remaining block. offset [count]: offset of each
    placed block; -1 for the others. low_row [sections]: row that is examined first. total
    [sections]: bytes of the remaining blocks. cut [sections]: number of remaining blocks that cross
    the border after the section. members [count]: the blocks, those of a part side by side. frames
    [FRAME_SLOTS * (count + 1)] and result [RESULT_SLOTS]: as laid out above. trail: an entry and a
    value for each change.
    """

    count: Integer
    capacity: Integer
    nodes: Integer
    work: Integer
    trail_entries: Integer
    size: Int64s
    begin: Int64s
    end: Int64s
    rank: Int64s
    twin: Int64s
    row_start: Int64s
    rows: Int64s
    lowest: Int64s
    offset: Int64s
    low_row: Int64s
    total: Int64s
    cut: Int64s
    members: Int64s
    frames: Int64s
    trail: Int64s
    result: Int64s


@inlined
def chosen_member(call: Attempt, frame: int) -> int:
    """Return the index among the members of the next block to place, or -1 if there is none.

    It is the block with the smallest key above the frame's. It is rejected if another block would
    fit entirely below it: the placement would have a gap that is never needed. Of blocks that
    differ in rank alone, only the first remaining one is a candidate.
    """
    key_offset, key_rank = call.frames[frame + KEY_OFFSET], call.frames[frame + KEY_RANK]
    least_top = call.capacity + 1
    found, found_low, found_rank = -1, least_top, 0
    call.result[WORK_DONE] += call.frames[frame + LAST] - call.frames[frame + FIRST]
    for place in range(call.frames[frame + FIRST], call.frames[frame + LAST]):
        member = call.members[place]
        low = call.lowest[member]
        least_top = min(least_top, low + call.size[member])
        if low < key_offset or low > found_low:
            continue
        ranked = call.rank[member]
        if low == key_offset and ranked <= key_rank:
            continue
        if low == found_low and ranked >= found_rank:
            continue
        if call.twin[member] >= 0 and call.offset[call.twin[member]] < 0:
            continue
        found, found_low, found_rank = place, low, ranked
    return found if found_low < least_top else -1


@inlined
def write_trail(call: Attempt, entry: int, value: int) -> None:
    """Record a change on the trail.

    entry: a block whose lowest offset was `value`, or the block count plus a block that was placed.
    """
    used = call.result[TRAIL_USED]
    call.trail[2 * used] = entry
    call.trail[2 * used + 1] = value
    call.result[TRAIL_USED] = used + 1


@inlined
def undo(call: Attempt, mark: int) -> None:
    """Revert every change after `mark`, the newest first."""
    call.result[WORK_DONE] += call.result[TRAIL_USED] - mark
    for used in range(call.result[TRAIL_USED] - 1, mark - 1, -1):
        entry, value = call.trail[2 * used], call.trail[2 * used + 1]
        if entry < call.count:
            call.lowest[entry] = value
        else:
            placed = entry - call.count
            call.offset[placed] = -1
            call.result[WORK_DONE] += call.end[placed] - call.begin[placed]
            for section in range(call.begin[placed], call.end[placed]):
                call.total[section] += call.size[placed]
                call.cut[section] += 1
            call.cut[call.end[placed] - 1] -= 1
    call.result[TRAIL_USED] = mark


@inlined
def raise_others(call: Attempt, frame: int, placed: int) -> int:
    """Raise the lowest offsets of the remaining blocks that overlap `placed` in time to its top.

    Return bit 0 if all of them still fit, and bit 1 if there is any such block.
    """
    left, right = call.begin[placed], call.end[placed]
    top = call.lowest[placed] + call.size[placed]
    fits, hat, least_size = 1, 0, call.capacity
    call.result[WORK_DONE] += call.frames[frame + LAST] - call.frames[frame + FIRST]
    for place in range(call.frames[frame + FIRST], call.frames[frame + LAST] - 1):
        other = call.members[place]
        least_size = min(least_size, call.size[other])
        if call.begin[other] >= right or call.end[other] <= left:
            continue
        hat = 2
        before = call.lowest[other]
        if before < top:
            write_trail(call, other, before)
            call.lowest[other] = top
            if top + call.size[other] > call.capacity:
                fits = 0
    call.result[MIN_SIZE] = least_size
    return fits + hat


@inlined
def lifted_offset(call: Attempt, frame: int, member: int) -> int:
    """Return a lower bound on the offset of a remaining block.

    A block with a key below the frame's cannot be placed at its lowest offset any more: it must
    come to lie on another block, and that raises it by at least the smallest remaining size.
    """
    low: int = call.lowest[member]
    at: int = call.frames[frame + KEY_OFFSET]
    least_size: int = call.result[MIN_SIZE]
    if low > at or (low == at and call.rank[member] > call.frames[frame + KEY_RANK]):
        return low
    return at + least_size


@inlined
def still_fits(call: Attempt, frame: int) -> int:
    """Return whether in each section the remaining blocks fit above the lowest offset left there.

    One block with a low enough offset proves it. That block is examined first the next time,
    because it usually proves it again.
    """
    call.result[WORK_DONE] += call.frames[frame + RIGHT] - call.frames[frame + LEFT]
    for section in range(call.frames[frame + LEFT], call.frames[frame + RIGHT]):
        if call.total[section] == 0:
            continue
        highest = call.capacity - call.total[section]
        first = row = call.low_row[section]
        while (
            call.offset[call.rows[row]] >= 0 or lifted_offset(call, frame, call.rows[row]) > highest
        ):
            call.result[WORK_DONE] += 1
            row += 1
            if row == call.row_start[section + 1]:
                row = call.row_start[section]
            if row == first:
                return 0
        call.low_row[section] = row
    return 1


@inlined
def place_member(call: Attempt, frame: int, place: int) -> int:
    """Place the member at `place`; return whether all remaining blocks may still fit."""
    last = call.frames[frame + LAST] - 1
    placed = call.members[place]
    call.members[place], call.members[last] = call.members[last], placed
    at = call.lowest[placed]
    call.frames[frame + KEY_OFFSET] = at
    call.frames[frame + KEY_RANK] = call.rank[placed]
    call.frames[frame + MARK] = call.result[TRAIL_USED]
    call.frames[frame + REST_FIRST] = call.frames[frame + FIRST]
    call.frames[frame + REST_LEFT] = call.frames[frame + LEFT]
    write_trail(call, call.count + placed, 0)
    call.offset[placed] = at
    call.result[WORK_DONE] += _NODE_WORK + call.end[placed] - call.begin[placed]
    for section in range(call.begin[placed], call.end[placed]):
        call.total[section] -= call.size[placed]
        call.cut[section] -= 1
    call.cut[call.end[placed] - 1] += 1
    raised: int = raise_others(call, frame, placed)
    call.frames[frame + HATLESS] = 1 if raised < 2 else 0
    if raised & 1 == 0:
        return 0
    fits: int = still_fits(call, frame)
    return fits


@inlined
def open_part(call: Attempt, frame: int) -> None:
    """Make a frame for the first part of this frame that is not solved."""
    left = right = call.frames[frame + REST_LEFT]
    first, last = call.frames[frame + REST_FIRST], call.frames[frame + LAST] - 1
    middle = first
    # There may be no remaining block between two cuts.
    while middle == first:
        left = right
        while call.cut[right] > 0:
            right += 1
        right += 1
        for place in range(first, last):
            member = call.members[place]
            if call.begin[member] < right:
                call.members[place], call.members[middle] = call.members[middle], member
                middle += 1
    part = frame + FRAME_SLOTS
    call.frames[part + FIRST], call.frames[part + LAST] = first, middle
    call.frames[part + LEFT], call.frames[part + RIGHT] = left, right
    call.frames[part + KEY_OFFSET] = call.frames[frame + KEY_OFFSET]
    call.frames[part + KEY_RANK] = call.frames[frame + KEY_RANK]
    call.result[WORK_DONE] += last - first + right - call.frames[frame + REST_LEFT]
    call.frames[frame + REST_FIRST], call.frames[frame + REST_LEFT] = middle, right


@native
def search_loop(call: Attempt) -> None:
    """Place all blocks within the capacity; the first frame has placed none and holds the parts.

    The status is FOUND with the offsets, IMPOSSIBLE if no placement exists, or EXHAUSTED if nodes,
    work or trail are used up. The result depends on the arguments alone.
    """
    reserve = call.count + 1
    frame = 0
    descending = True
    while True:
        if descending:
            if call.frames[frame + REST_FIRST] < call.frames[frame + LAST] - 1:
                open_part(call, frame)
                frame += FRAME_SLOTS
                descending = False
            elif frame == 0:
                call.result[STATUS] = FOUND
                return
            else:
                # Part solved: continue with the next part of the frame before.
                frame -= FRAME_SLOTS
            continue
        place = chosen_member(call, frame)
        if place >= 0:
            trail_remaining = call.trail_entries - call.result[TRAIL_USED]
            is_spent = call.result[WORK_DONE] >= call.work or trail_remaining < reserve
            if is_spent or call.result[NODES_TAKEN] >= call.nodes:
                call.result[STATUS] = EXHAUSTED
                return
            call.result[NODES_TAKEN] += 1
            descending = place_member(call, frame, place) > 0
            if descending:
                continue
        else:
            frame -= FRAME_SLOTS
        # The last placement of the frame failed. If no remaining block overlaps it in time, it was
        # not the cause: no other candidate of the frame can do better, so the frame is left
        # (backjump).
        undo(call, call.frames[frame + MARK])
        while frame > 0 and call.frames[frame + HATLESS]:
            frame -= FRAME_SLOTS
            undo(call, call.frames[frame + MARK])
        if frame == 0:
            call.result[STATUS] = IMPOSSIBLE
            return


class SectionRows(Arguments):
    """Arguments of `rows_loop`: the lifetimes, and the index of each section's next row in rows."""

    count: Integer
    begin: Int64s
    end: Int64s
    free: Int64s
    rows: Int64s


@native
def rows_loop(call: SectionRows) -> None:
    """List the blocks of each section in `rows`, beginning at the section's index in `free`."""
    for member in range(call.count):
        for section in range(call.begin[member], call.end[member]):
            call.rows[call.free[section]] = member
            call.free[section] += 1
