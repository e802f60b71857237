"""Tables of the roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from consoles import printed
from rich.console import RenderableType

from mxrun.report.roofline import roofline_table, roofline_text


def rendered(part: RenderableType, width: int = 160) -> list[str]:
    return printed(part, width=width).splitlines()


def floor(name: str, ms: float, floor_ms: float, **changes: object) -> dict[str, Any]:
    row = {
        "name": name,
        "op": "Convolution",
        "phase": "forward",
        "ms": ms,
        "floor_ms": floor_ms,
        "bound": "compute",
        "of_bound": floor_ms / ms,
    }
    return row | changes


def report_of(*rows: Mapping[str, Any], **changes: object) -> dict[str, Any]:
    machine = {
        "threads": 2,
        "flops_per_s": {"float32": 4.44e11, "bfloat16": 4.26e12},
        "bandwidths": [
            {"nbytes": nbytes, "update": 3e11, "copy": copy, "read": 3e11}
            for nbytes, copy in ((1 << 15, 4e11), (1 << 16, 3e11), (1 << 20, 2e11), (1 << 30, 3e10))
        ],
        "cache_bytes": [1 << 16, 1 << 22],
    }
    win = {"op": "Convolution", "phase": "backward", "savings_ms": 0.25, "savings": 0.11}
    roofline = {
        "machine": machine,
        "operators": list(rows),
        "step": {
            "ms": 2.0,
            "operators_ms": 1.9,
            "floor_ms": 1.2,
            "of_floor": 0.6,
            "predicted_ms": 2.1,
            "error": 0.05,
        },
        "largest_excesses": [
            win,
            win | {"op": "_reorder", "phase": "reorder", "savings_ms": 0.1, "savings": 0.05},
        ],
        "disturbed": False,
    }
    return {
        "profile": {"steps": 50},
        "operators": [{"name": row["name"], "implementation": "onednn:jit"} for row in rows],
        "roofline": roofline | changes,
    }


def test_the_slowest_operator_stands_first_with_its_floor() -> None:
    report = report_of(
        floor("[conv1]", 0.2, 0.1),
        floor("conv2", 0.6, 0.48, phase="backward"),
        floor("bias", 0.2, 0.00001, op="sgd_update", bound="overhead", of_bound=0.34),
    )
    lines = rendered(roofline_table(report))
    assert lines[0].strip() == "operators, the median of 50 steps"
    rows = {line.split()[0]: line.split()[1:] for line in lines if "onednn:jit" in line}
    assert list(rows) == ["conv2", "[conv1]", "bias"]
    assert rows["conv2"] == [
        "Convolution",
        "onednn:jit",
        "0.600",
        "60.0%",
        "0.480",
        "80%",
        "compute",
    ]
    assert rows["bias"] == [
        "sgd_update",
        "onednn:jit",
        "0.200",
        "20.0%",
        "0.00001",
        "34%",
        "overhead",
    ]
    (total,) = [line.split() for line in lines if line.split()[:1] == ["total"]]
    assert total == ["total", "1.000", "0.580", "58%"]
    text = "\n".join(lines)
    assert "forward 40%" in text
    assert "backward 60%" in text


def test_many_operators_end_in_one_row() -> None:
    report = report_of(*(floor(f"conv{number}", 0.5, 0.25) for number in range(100)))
    lines = rendered(roofline_table(report))
    assert sum("onednn:jit" in line for line in lines) == 40
    (rest,) = [line.split() for line in lines if "others" in line]
    assert rest == ["60", "others", "30.000", "60.0%", "15.000"]


def test_numbers_stay_whole_on_a_narrow_console() -> None:
    report = report_of(floor("stage1/unit1/conv1:backward", 0.5, 0.05))
    lines = rendered(roofline_table(report), width=80)
    (numbers,) = [line for line in lines if "100.0%" in line]
    assert numbers.split()[0] == "stage1/…/conv1:backward"
    assert numbers.split()[-4:] == ["0.500", "100.0%", "0.05000", "compute"]
    assert lines[-1].startswith("not shown: implementation, of bound (in a wider terminal")
    assert max(map(len, lines)) <= 80


def test_the_step_the_largest_excesses_and_the_machine_are_told() -> None:
    lines = rendered(roofline_text(report_of(floor("conv", 0.5, 0.4))["roofline"]), 300)
    assert lines == [
        "The step's floor is 1.200 ms, 60% of what it takes; predicted 2.100 ms, +5%.",
        "Most time above the floors: Convolution backward 0.250 ms (11% of the step), "
        "reorders 0.100 ms (5% of the step).",
        "The machine's peak speeds, 2 threads: 444 GFLOP/s in float32, 4,260 GFLOP/s in "
        "bfloat16; copying 400 GB/s in 32.00 KiB, 200 GB/s in 1.00 MiB, 30 GB/s in 1.00 GiB.",
    ]


def test_a_machine_without_bfloat16_says_so() -> None:
    roofline = report_of(floor("conv", 0.5, 0.4))["roofline"]
    roofline["machine"] |= {"flops_per_s": {"float32": 1e11}, "threads": 1, "cache_bytes": []}
    (machine,) = rendered(roofline_text(roofline), 300)[2:]
    assert machine == (
        "The machine's peak speeds, 1 thread: 100 GFLOP/s in float32, no instructions for "
        "bfloat16; copying 30 GB/s in 1.00 GiB."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"disturbed": True}, "Other work kept the machine busy"),
        ({"operators": [floor("conv", 0.5, 0.6)]}, "Measure it again with --remeasure."),
        ({"operators": [floor("conv", 0.5, 0.54)]}, ""),
    ],
)
def test_figures_that_other_work_disturbed_are_told(changes: dict[str, Any], said: str) -> None:
    lines = rendered(roofline_text(report_of(floor("conv", 0.5, 0.4), **changes)["roofline"]), 300)
    assert len(lines) == (4 if said else 3)
    assert said in lines[-1]


def test_operators_that_took_longer_than_whole_steps_are_told() -> None:
    roofline = report_of(floor("conv", 7.6, 0.4))["roofline"]
    roofline["step"]["operators_ms"] = 7.6
    lines = rendered(roofline_text(roofline), 300)
    assert lines[1] == (
        "Most time above the floors: Convolution backward 0.250 ms (11% of the operators), "
        "reorders 0.100 ms (5% of the operators)."
    )
    assert lines[3:] == [
        "The operators took 7.600 ms in the profiled steps, 3.8 times the median unprofiled "
        "step: the machine was probably busy with other work. Times above the floors are "
        "shares of the operators' time."
    ]
    # The clocks alone may cost this much.
    roofline["step"]["operators_ms"] = 2.1
    assert len(rendered(roofline_text(roofline), 300)) == 3
