"""Every kernel of graphics cards is assembled by NVIDIA's assembler, without a card."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from card_kernels import REFUSED, SPILLING, everything, maps, native_functions
from kernel_table import CARDS, rows
from ptxas import assembled, needs_ptxas

from mxrun.base.dtype import BFLOAT16
from mxrun.codegen import jit
from mxrun.codegen.code_identity import identity_of
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.sequential.arithmetic import Untyped

TABLE = rows()
# One of each form: lanes, divided iterations, shuffles, maps within and alone, and float64.
SAMPLE = (
    "embedding.lookup_loop",
    "layer_norm.loops.normalize_rows_loop bfloat16",
    "cumulative_sum.lines_loop",
    "strided_map.chunks_loop of power",
    "adamw_update",
    "tanh of float32",
    "digamma of float64",
)
# Registers by which another version of the compilers may differ from the table.
_MORE = 24


def check(name: str, *cards: str) -> None:
    ptx = everything()[name].gpu_kernel.ptx
    # A function of the C library would be one that no card has; all else is rounded as on a CPU.
    assert not re.search(r"extern|\.(?:approx|ftz|full)\b", ptx)
    for card in cards:
        usage, known = assembled(ptx, card), TABLE[name][CARDS.index(card)]
        assert usage.registers <= known.registers + _MORE, card
        assert usage.stack == known.stack == 0 or name.partition(" ")[0] in SPILLING, card


@pytest.mark.parametrize("name", SAMPLE)
@needs_ptxas
def test_Q16_kernels_are_assembled_without_spills(name: str) -> None:
    check(name, CARDS[0], CARDS[-1])


@pytest.mark.full
@pytest.mark.parametrize("name", TABLE)
@needs_ptxas
def test_Q16_every_kernel_is_assembled(name: str) -> None:
    check(name, CARDS[0])


@pytest.mark.soak
@pytest.mark.parametrize("card", CARDS)
@needs_ptxas
def test_Q16_every_kernel_is_assembled_for_every_card(card: str) -> None:
    for name in TABLE:
        check(name, card)


@pytest.mark.soak
@needs_ptxas
def test_maps_of_bfloat16_are_assembled_without_spills() -> None:
    for name, loop in maps(BFLOAT16).items():
        assert assembled(loop.gpu_kernel.ptx, CARDS[0]).stack == 0, name


def test_the_table_has_all_kernels_and_no_other() -> None:
    assert TABLE.keys() == everything().keys()


def test_the_page_says_how_many_there_are() -> None:
    assert f"80, 90 and 100 | {len(TABLE)} |" in files("mxrun").joinpath("docs/gpus.md").read_text()


def test_functions_that_run_maps_have_them() -> None:
    for name, function in everything().items():
        if isinstance(function, NativeFunction):
            identity = identity_of(function.body, jit._VOCABULARY_MODULES)
            assert identity is not None
            assert ("run_map" in identity) == bool(function.maps), name


@pytest.mark.parametrize("name", REFUSED)
def test_functions_for_other_processors_are_refused(name: str) -> None:
    with pytest.raises(Untyped, match="graphics cards have no multiply_pair"):
        _ = native_functions()[name].gpu_kernel


def test_what_is_listed_spills() -> None:
    for name in SPILLING:
        assert any(usage.stack for usage in TABLE[name]), name
