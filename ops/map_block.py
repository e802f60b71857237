"""Argument blocks in scratch space with which compiled loops run their maps.

A block is, in words: the number of elements; the addresses of the map's outputs and operands; its
parameters.
"""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.intrinsics import worker
from mxrun.codegen.jit import inlined

# Words of a block, enough for most maps.
BLOCK_WORDS = 16
WORD_BYTES = 8


class MapBlocks(Arguments):
    """Argument blocks, one for each thread.

    words_per_worker: words of a thread's scratch space; words: this space.
    """

    words_per_worker: Integer
    words: Int64s


@inlined
def own_block(call: MapBlocks) -> int:
    """Return the word at which the thread's block begins."""
    own: int = worker() * call.words_per_worker
    return own
