"""Argument blocks in scratch space with which compiled loops call the code of generated maps.

A block is, in words: the header, which is zero for a call on one thread; the number of elements;
the addresses of the map's outputs and operands; its parameters.
"""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.intrinsics import call_address, worker
from mxrun.codegen.jit import inlined

# Words of a block, enough for most maps.
BLOCK_WORDS = 16
WORD_BYTES = 8


class MapBlocks(Arguments):
    """Argument blocks, one for each thread.

    words_per_worker: words of a thread's scratch space; words,
    scratch_address: this space.
    """

    words_per_worker: Integer
    words: Int64s
    scratch_address: Integer


@inlined
def own_block(call: MapBlocks) -> int:
    """Return the word at which the thread's block begins."""
    own: int = worker() * call.words_per_worker
    return own


@inlined
def run_block(call: MapBlocks, code: int, own: int) -> None:
    """Run a map's code with the block that begins at word `own`."""
    call_address(code, call.scratch_address + WORD_BYTES * own, 0, 1, 0, 0, 0)
