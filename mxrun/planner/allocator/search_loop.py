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

from mxrun.backend.jit import Block, inlined, int64s, integer, native

FOUND, IMPOSSIBLE, EXHAUSTED = 0, 1, 2

# Argument slots: numbers, properties of the blocks and sections, and the state of the search.
COUNT, CAPACITY, NODES, WORK, TRAIL_ENTRIES = 0, 1, 2, 3, 4
SIZE, BEGIN, END, RANK, TWIN, ROW_START, ROWS = 5, 6, 7, 8, 9, 10, 11
LOWEST, OFFSET, LOW_ROW, TOTAL, CUT, MEMBERS, FRAMES, TRAIL, RESULT = (
    *(12, 13, 14, 15, 16),
    *(17, 18, 19, 20),
)

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


@inlined
def chosen_member(block: Block, frame: int) -> int:
    """Return the index among the members of the next block to place, or -1 if there is none.

    It is the block with the smallest key above the frame's. It is rejected if another block would
    fit entirely below it: the placement would have a gap that is never needed. Of blocks that
    differ in rank alone, only the first remaining one is a candidate.
    """
    frames, members = int64s(block, FRAMES), int64s(block, MEMBERS)
    size, rank, twin = int64s(block, SIZE), int64s(block, RANK), int64s(block, TWIN)
    lowest, offset = int64s(block, LOWEST), int64s(block, OFFSET)
    key_offset, key_rank = frames[frame + KEY_OFFSET], frames[frame + KEY_RANK]
    least_top = integer(block, CAPACITY) + 1
    found, found_low, found_rank = -1, least_top, 0
    int64s(block, RESULT)[WORK_DONE] += frames[frame + LAST] - frames[frame + FIRST]
    for place in range(frames[frame + FIRST], frames[frame + LAST]):
        member = members[place]
        low = lowest[member]
        least_top = min(least_top, low + size[member])
        if low < key_offset or low > found_low:
            continue
        ranked = rank[member]
        if low == key_offset and ranked <= key_rank:
            continue
        if low == found_low and ranked >= found_rank:
            continue
        if twin[member] >= 0 and offset[twin[member]] < 0:
            continue
        found, found_low, found_rank = place, low, ranked
    return found if found_low < least_top else -1


@inlined
def write_trail(block: Block, entry: int, value: int) -> None:
    """Record a change on the trail.

    entry: a block whose lowest offset was `value`, or the block count plus a block that was placed.
    """
    trail, result = int64s(block, TRAIL), int64s(block, RESULT)
    used = result[TRAIL_USED]
    trail[2 * used] = entry
    trail[2 * used + 1] = value
    result[TRAIL_USED] = used + 1


@inlined
def undo(block: Block, mark: int) -> None:
    """Revert every change after `mark`, the newest first."""
    trail, result = int64s(block, TRAIL), int64s(block, RESULT)
    lowest, offset = int64s(block, LOWEST), int64s(block, OFFSET)
    total, cut = int64s(block, TOTAL), int64s(block, CUT)
    size, begin, end = int64s(block, SIZE), int64s(block, BEGIN), int64s(block, END)
    count = integer(block, COUNT)
    result[WORK_DONE] += result[TRAIL_USED] - mark
    for used in range(result[TRAIL_USED] - 1, mark - 1, -1):
        entry, value = trail[2 * used], trail[2 * used + 1]
        if entry < count:
            lowest[entry] = value
        else:
            placed = entry - count
            offset[placed] = -1
            result[WORK_DONE] += end[placed] - begin[placed]
            for section in range(begin[placed], end[placed]):
                total[section] += size[placed]
                cut[section] += 1
            cut[end[placed] - 1] -= 1
    result[TRAIL_USED] = mark


@inlined
def raise_others(block: Block, frame: int, placed: int) -> int:
    """Raise the lowest offsets of the remaining blocks that overlap `placed` in time to its top.

    Return bit 0 if all of them still fit, and bit 1 if there is any such block.
    """
    frames, members = int64s(block, FRAMES), int64s(block, MEMBERS)
    size, begin, end = int64s(block, SIZE), int64s(block, BEGIN), int64s(block, END)
    lowest, result = int64s(block, LOWEST), int64s(block, RESULT)
    capacity, left, right = integer(block, CAPACITY), begin[placed], end[placed]
    top = lowest[placed] + size[placed]
    fits, hat, least_size = 1, 0, capacity
    result[WORK_DONE] += frames[frame + LAST] - frames[frame + FIRST]
    for place in range(frames[frame + FIRST], frames[frame + LAST] - 1):
        other = members[place]
        least_size = min(least_size, size[other])
        if begin[other] >= right or end[other] <= left:
            continue
        hat = 2
        before = lowest[other]
        if before < top:
            write_trail(block, other, before)
            lowest[other] = top
            if top + size[other] > capacity:
                fits = 0
    result[MIN_SIZE] = least_size
    return fits + hat


@inlined
def lifted_offset(block: Block, frame: int, member: int) -> int:
    """Return a lower bound on the offset of a remaining block.

    A block with a key below the frame's cannot be placed at its lowest offset any more: it must
    come to lie on another block, and that raises it by at least the smallest remaining size.
    """
    frames = int64s(block, FRAMES)
    low: int = int64s(block, LOWEST)[member]
    at: int = frames[frame + KEY_OFFSET]
    least_size: int = int64s(block, RESULT)[MIN_SIZE]
    if low > at or (low == at and int64s(block, RANK)[member] > frames[frame + KEY_RANK]):
        return low
    return at + least_size


@inlined
def still_fits(block: Block, frame: int) -> int:
    """Return whether in each section the remaining blocks fit above the lowest offset left there.

    One block with a low enough offset proves it. That block is examined first the next time,
    because it usually proves it again.
    """
    frames, result, total = int64s(block, FRAMES), int64s(block, RESULT), int64s(block, TOTAL)
    rows, row_start, low_row = int64s(block, ROWS), int64s(block, ROW_START), int64s(block, LOW_ROW)
    offset, capacity = int64s(block, OFFSET), integer(block, CAPACITY)
    result[WORK_DONE] += frames[frame + RIGHT] - frames[frame + LEFT]
    for section in range(frames[frame + LEFT], frames[frame + RIGHT]):
        if total[section] == 0:
            continue
        highest = capacity - total[section]
        first = row = low_row[section]
        while offset[rows[row]] >= 0 or lifted_offset(block, frame, rows[row]) > highest:
            result[WORK_DONE] += 1
            row += 1
            if row == row_start[section + 1]:
                row = row_start[section]
            if row == first:
                return 0
        low_row[section] = row
    return 1


@inlined
def place_member(block: Block, frame: int, place: int) -> int:
    """Place the member at `place`; return whether all remaining blocks may still fit."""
    frames, members = int64s(block, FRAMES), int64s(block, MEMBERS)
    size, begin, end = int64s(block, SIZE), int64s(block, BEGIN), int64s(block, END)
    offset, total, cut = int64s(block, OFFSET), int64s(block, TOTAL), int64s(block, CUT)
    last = frames[frame + LAST] - 1
    placed = members[place]
    members[place], members[last] = members[last], placed
    at = int64s(block, LOWEST)[placed]
    frames[frame + KEY_OFFSET] = at
    frames[frame + KEY_RANK] = int64s(block, RANK)[placed]
    frames[frame + MARK] = int64s(block, RESULT)[TRAIL_USED]
    frames[frame + REST_FIRST] = frames[frame + FIRST]
    frames[frame + REST_LEFT] = frames[frame + LEFT]
    write_trail(block, integer(block, COUNT) + placed, 0)
    offset[placed] = at
    int64s(block, RESULT)[WORK_DONE] += _NODE_WORK + end[placed] - begin[placed]
    for section in range(begin[placed], end[placed]):
        total[section] -= size[placed]
        cut[section] -= 1
    cut[end[placed] - 1] += 1
    raised: int = raise_others(block, frame, placed)
    frames[frame + HATLESS] = 1 if raised < 2 else 0
    if raised & 1 == 0:
        return 0
    fits: int = still_fits(block, frame)
    return fits


@inlined
def open_part(block: Block, frame: int) -> None:
    """Make a frame for the first part of this frame that is not solved."""
    frames, members = int64s(block, FRAMES), int64s(block, MEMBERS)
    begin, cut = int64s(block, BEGIN), int64s(block, CUT)
    left = right = frames[frame + REST_LEFT]
    first, last = frames[frame + REST_FIRST], frames[frame + LAST] - 1
    middle = first
    # There may be no remaining block between two cuts.
    while middle == first:
        left = right
        while cut[right] > 0:
            right += 1
        right += 1
        for place in range(first, last):
            member = members[place]
            if begin[member] < right:
                members[place], members[middle] = members[middle], member
                middle += 1
    part = frame + FRAME_SLOTS
    frames[part + FIRST], frames[part + LAST] = first, middle
    frames[part + LEFT], frames[part + RIGHT] = left, right
    frames[part + KEY_OFFSET] = frames[frame + KEY_OFFSET]
    frames[part + KEY_RANK] = frames[frame + KEY_RANK]
    int64s(block, RESULT)[WORK_DONE] += last - first + right - frames[frame + REST_LEFT]
    frames[frame + REST_FIRST], frames[frame + REST_LEFT] = middle, right


@native
def search_loop(block: Block) -> None:
    """Place all blocks within the capacity; the first frame has placed none and holds the parts.

    The status is FOUND with the offsets, IMPOSSIBLE if no placement exists, or EXHAUSTED if nodes,
    work or trail are used up. The result depends on the arguments alone.
    """
    frames, result = int64s(block, FRAMES), int64s(block, RESULT)
    reserve = integer(block, COUNT) + 1
    frame = 0
    descending = True
    while True:
        if descending:
            if frames[frame + REST_FIRST] < frames[frame + LAST] - 1:
                open_part(block, frame)
                frame += FRAME_SLOTS
                descending = False
            elif frame == 0:
                result[STATUS] = FOUND
                return
            else:
                # Part solved: continue with the next part of the frame before.
                frame -= FRAME_SLOTS
            continue
        place = chosen_member(block, frame)
        if place >= 0:
            trail_remaining = integer(block, TRAIL_ENTRIES) - result[TRAIL_USED]
            is_spent = result[WORK_DONE] >= integer(block, WORK) or trail_remaining < reserve
            if is_spent or result[NODES_TAKEN] >= integer(block, NODES):
                result[STATUS] = EXHAUSTED
                return
            result[NODES_TAKEN] += 1
            descending = place_member(block, frame, place) > 0
            if descending:
                continue
        else:
            frame -= FRAME_SLOTS
        # The last placement of the frame failed. If no remaining block overlaps it in time, it was
        # not the cause: no other candidate of the frame can do better, so the frame is left
        # (backjump).
        undo(block, frames[frame + MARK])
        while frame > 0 and frames[frame + HATLESS]:
            frame -= FRAME_SLOTS
            undo(block, frames[frame + MARK])
        if frame == 0:
            result[STATUS] = IMPOSSIBLE
            return


@native
def rows_loop(block: Block) -> None:
    """List the blocks of each section in `rows`, beginning at the section's index in `free`."""
    begin, end = int64s(block, 1), int64s(block, 2)
    free, rows = int64s(block, 3), int64s(block, 4)
    for member in range(integer(block, 0)):
        for section in range(begin[member], end[member]):
            rows[free[section]] = member
            free[section] += 1
