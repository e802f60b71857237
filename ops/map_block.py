"""Argument blocks in scratch space with which compiled loops call the code of generated maps.

A block is, in words: the header, which is zero for a call on one thread; the number of elements;
the addresses of the map's outputs and operands; its parameters.
"""

from __future__ import annotations

from mxrun.codegen.arguments import HEADER_SLOTS, Arguments, Int64s, Integer
from mxrun.codegen.intrinsics import call_address, share
from mxrun.codegen.jit import inlined

# Words of a block, enough for most maps.
BLOCK_WORDS = 16
WORD_BYTES = 8


class MapBlocks(Arguments):
    """Argument blocks, one for each thread.

    scratch_words: words of the team's scratch space, as many for each thread; words,
    scratch_address: this space.
    """

    scratch_words: Integer
    words: Int64s
    scratch_address: Integer


@inlined
def own_block(call: MapBlocks) -> int:
    """Clear the header of the thread's block, and return the word at which the block begins."""
    own, _ = share(call.scratch_words)
    for index in range(HEADER_SLOTS):
        call.words[own + index] = 0
    return own


@inlined
def run_block(call: MapBlocks, code: int, own: int) -> None:
    """Run a map's code with the block that begins at word `own`."""
    call_address(code, call.scratch_address + WORD_BYTES * own, 0, 0, 0, 0, 0)
