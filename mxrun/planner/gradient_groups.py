"""Groups of adjacent gradients, which are exchanged together, and the slices of them by rank.

The grouping depends on the sizes alone, so that all ranks have the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.slices import slice_bounds
from mxrun.planner.plan import Block

# Larger buckets overlap less with backward, smaller ones cost more calls.
_MAX_BYTES = 4 << 20
_MIN_BYTES = 1 << 18
# Buckets of a small network.
_FEW = 4
_FLOAT32_BYTES = 4


def gradient_groups(blocks: Sequence[Block], nbytes: int | None = None) -> list[list[Block]]:
    """Return adjacent blocks in groups of about `nbytes`, none of which has less than a half of it
    unless it is the only one.

    nbytes: more for a larger tensor; default: at most 4 MiB, and less for small networks, of which
    there are then about four groups.
    """
    if nbytes is None:
        total = sum(block.nbytes for block in blocks)
        nbytes = min(_MAX_BYTES, max(_MIN_BYTES, total // _FEW))
    groups: list[list[Block]] = []
    sizes: list[int] = []
    for block in blocks:
        is_full = bool(groups) and sizes[-1] + block.nbytes > nbytes
        if not groups or (is_full and 2 * sizes[-1] >= nbytes):
            groups.append([])
            sizes.append(0)
        groups[-1].append(block)
        sizes[-1] += block.nbytes
    if len(groups) > 1 and 2 * sizes[-1] < nbytes:
        last = groups.pop()
        groups[-1] += last
    return groups


def rank_bounds(
    blocks: Sequence[Block], elements: Mapping[str, int], ranks: int
) -> dict[str, list[int]]:
    """Return for each gradient the bounds of the slices that ranks own, one more than ranks.

    blocks: of all gradients. elements: of each, all float32. Every group is cut into equal slices,
    whatever tensors they cut, so that a rank owns at most one slice of a tensor.
    """
    found = {}
    for group in gradient_groups(blocks):
        begin, end = group[0].offset, group[-1].end
        slices = slice_bounds(end - begin, ranks)
        for block in group:
            first, count = block.offset - begin, elements[block.name]
            found[block.name] = [
                min(count, max(0, (bound - first) // _FLOAT32_BYTES)) for bound in slices
            ]
    return found
