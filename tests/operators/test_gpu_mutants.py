"""Mutants of real kernels for GPUs: what the emulator's checks must find, whatever the order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

import pytest
from gpu_emulator.device import EmulatedDevice
from gpu_emulator.emulated import ORDERS
from gpu_emulator.operators import EMULATED, results
from operator_row import Row

from mxrun.contract.problem import Breach
from mxrun.operator.register import implementations

_BARRIER = re.compile(r"call void @llvm\.nvvm\.(?:bar\.warp\.sync|barrier\.cta[\w.]*)\([^)]*\)")
NORMALIZATION = Row("BatchNorm", {"fix_gamma": False}, (6, 40, 3, 3))
PRODUCT = Row("dot", {}, (70, 40), shapes={"rhs": (40, 70)})
ROWS_OF_DATA = Row("LayerNorm", {}, (5, 70))
SOFTMAX = Row("softmax", {}, (3, 5000))
LINEAR = Row("FullyConnected", {"num_hidden": 300}, (70, 40))
GATED = Row("gated_activation", {"act_type": "silu"}, (6, 150))
BIASED = Row("_bias_activation", {}, (70, 50))
POWER = Row("broadcast_power", {}, (2, 3, 4), {"rhs": (1, 3, 1)})
SUM = Row("elemwise_add", {}, (50, 7))


def no_barrier(number: int) -> Callable[[str], str]:
    """Take away a barrier."""
    return lambda text: (
        _replaced(text, _BARRIER, "call void @llvm.donothing()", number)
        + ("\ndeclare void @llvm.donothing()\n")
    )


def no_barriers(text: str) -> str:
    """Take away all barriers."""
    return _BARRIER.sub("call void @llvm.donothing()", text) + "\ndeclare void @llvm.donothing()\n"


def no_guard(number: int) -> Callable[[str], str]:
    """Take away a comparison, as if it were true."""
    return lambda text: _replaced(text, re.compile(r"= icmp [^\n]*"), "= icmp eq i64 0, 0", number)


def all_lanes(text: str) -> str:
    """Let all lanes do what lane 0 does."""
    changed, count = re.subn(r"icmp eq i32 (%[\w.]+), 0", r"icmp sge i32 \1, 0", text)
    assert count > 0
    return changed


def mask_of_a_warp(text: str) -> str:
    """Let lanes wait for those of the other half-warp, which has no task."""
    changed, count = re.subn(r"shl (?:nuw )?i32 65535", "shl i32 -1", text)
    assert count > 0
    return changed


def shuffles_of_a_warp(text: str) -> str:
    """Let shuffles read lanes of the other half-warp, which has another task."""
    changed, count = re.subn(r"i32 4127\)", "i32 31)", text)
    assert count > 0
    return changed


def _replaced(text: str, pattern: re.Pattern[str], by: str, number: int) -> str:
    found = list(pattern.finditer(text))[number]
    return text[: found.start()] + by + text[found.end() :]


RACE = r"race: lane \d+ of block \d+ .* lane \d+ of block \d+, without a barrier between\n  at: "
OUTSIDE = r"lane \d+ of block \d+ (reads|writes) \d+ bytes at address 0x\w+, outside of"
ELSEWHERE = r"lane \d+ of block \d+ shuffles from lane \d+, which is not in mask 0xffff0000"
DEADLOCK = r"deadlock: lane \d+ of block \d+ waits at .*, mask 0xffffffff"
# Name: the row, the backend, the function whose kernel is changed, the change, what is found.
MUTANTS: Mapping[str, tuple[Row, str, str, Callable[[str], str], str]] = {
    "statistics without a barrier": (
        *(NORMALIZATION, "blocks", "statistics_block", no_barrier(0), RACE),
    ),
    **{
        f"product without barrier {number}": (
            *(PRODUCT, "jit", "product_block", no_barrier(number), RACE),
        )
        # The others order each thread's own memory alone.
        for number in (3, 4)
    },
    **{
        f"wide softmax without barrier {number}": (
            *(SOFTMAX, "jit", "softmax_block", no_barrier(number), RACE),
        )
        for number in range(8)
    },
    "scale of more channels": (NORMALIZATION, "blocks", "scale_block", no_guard(1), OUTSIDE),
    "totals of more columns": (LINEAR, "jit", "block_totals_block", no_guard(1), OUTSIDE),
    "rows without barriers": (ROWS_OF_DATA, "jit", "row_gradients_loop", no_barriers, RACE),
    "statistics of all lanes": (ROWS_OF_DATA, "jit", "normalize_rows_loop", all_lanes, RACE),
    "rows of a warp": (ROWS_OF_DATA, "jit", "normalize_rows_loop", mask_of_a_warp, DEADLOCK),
    "sums of a warp": (ROWS_OF_DATA, "jit", "normalize_rows_loop", shuffles_of_a_warp, ELSEWHERE),
    "maps of rows without barriers": (GATED, "jit", "row_maps_loop", no_barriers, RACE),
    "maps of rows of all lanes": (GATED, "jit", "row_maps_loop", all_lanes, RACE),
    "summed map without barriers": (BIASED, "jit", "summed_map_loop", no_barriers, RACE),
    "summed map of a warp": (BIASED, "jit", "summed_map_loop", mask_of_a_warp, DEADLOCK),
    # In some orders a lane uses an address before another one has written it.
    "chunks without barriers": (POWER, "jit", "chunks_loop", no_barriers, f"{RACE}|.*{OUTSIDE}"),
    "chunks of all lanes": (POWER, "jit", "chunks_loop", all_lanes, RACE),
    "map of surplus half-warps": (SUM, "jit", "map", no_guard(0), RACE),
    **{
        f"map of more {what}": (SUM, "jit", "map", no_guard(number), OUTSIDE)
        for what, number in (("vectors", 3), ("elements", 4))
    },
}


def test_the_page_says_how_many_there_are() -> None:
    assert (
        f"found in three orders | {len(MUTANTS)} |"
        in files("mxrun").joinpath("docs/gpus.md").read_text()
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, backend, function, change, message = MUTANTS[name]
    monkeypatch.setattr(EmulatedDevice, "is_checked", True)
    monkeypatch.setattr(EmulatedDevice, "order", order)
    monkeypatch.setattr(EmulatedDevice, "changes", {function: change})
    with pytest.raises(Breach) as caught:
        results(row, implementations(row.operator)[backend], EMULATED)
    found = str(caught.value.__cause__)
    assert re.search(f"{function}: {message}", found, re.DOTALL), found
