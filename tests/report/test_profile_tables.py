"""Tables of profiles."""

from __future__ import annotations

from typing import Any

from consoles import printed
from rich.console import RenderableType

from mxrun.report.profile import bench_tables, profile_table, run_tables


def rendered(*parts: RenderableType, width: int = 160) -> list[str]:
    return printed(*parts, width=width).splitlines()


def row(name: str, ms: float, share: float, phase: str = "forward") -> dict[str, Any]:
    return {
        "name": name,
        "op": "Convolution",
        "phase": phase,
        "implementation": "onednn:jit",
        "calls": 1200,
        "ms": ms,
        "share": share,
        "gflops": 123.456,
        "gbytes_per_s": 0.5,
        "candidates": [],
    }


def roofline() -> dict[str, Any]:
    bandwidth = {"nbytes": 1024, "update": 3e10, "copy": 2e10, "read": 2e10}
    floor = {"name": "conv1", "op": "Convolution", "phase": "forward", "ms": 1.1, "floor_ms": 0.4}
    win = {"op": "Convolution", "phase": "forward", "savings_ms": 0.8, "savings": 0.53}
    return {
        "machine": {
            "threads": 2,
            "flops_per_s": {"float32": 4e11},
            "bandwidths": [bandwidth],
            "cache_bytes": [4096],
        },
        "operators": [floor | {"bound": "compute", "of_bound": 0.36}],
        "step": {
            "ms": 1.5,
            "operators_ms": 1.1,
            "floor_ms": 0.4,
            "of_floor": 0.27,
            "predicted_ms": 1.2,
            "error": -0.2,
        },
        "largest_excesses": [win],
        "disturbed": False,
    }


def test_the_slowest_operator_stands_first() -> None:
    rows = [row("[conv1]", 0.25, 0.2), row("conv2", 0.9, 0.72), row("fc", 0.1, 0.08, "backward")]
    lines = rendered(profile_table(rows, "title"))
    assert lines[0].strip() == "title"
    names = [line.split()[0] for line in lines if "Convolution" in line]
    assert names == ["conv2", "[conv1]", "fc"]
    (conv2,) = [line.split() for line in lines if "conv2" in line]
    assert conv2[2:] == ["onednn:jit", "1.2", "k", "0.900", "72.0%", "123", "0.5"]
    text = "\n".join(lines)
    assert "forward 92%" in text
    assert "backward 8%" in text
    (total,) = [line.split() for line in lines if line.split()[:1] == ["total"]]
    assert total == ["total", "1.250"]


def test_many_operators_end_in_one_row() -> None:
    rows = [row(f"conv{number}", 0.5, 0.01) for number in range(100)]
    lines = rendered(profile_table(rows, "title"))
    assert sum("Convolution" in line for line in lines) == 40
    (rest,) = [line.split() for line in lines if "others" in line]
    assert rest == ["60", "others", "30.000", "60.0%"]


def test_numbers_stay_whole_on_a_narrow_console() -> None:
    lines = rendered(profile_table([row("conv1", 0.5, 1.0)], "title"), width=80)
    (numbers,) = [line for line in lines if "100.0%" in line]
    assert numbers.split() == ["conv1", "Convolution", "1.2", "k", "0.500", "100.0%", "123", "0.5"]
    assert lines[-1].startswith("not shown: implementation (in a wider terminal")
    assert max(map(len, lines)) <= 80


def test_each_phase_of_a_run_has_its_table() -> None:
    profiles = {"train": [row("conv1", 0.5, 1.0)], "evaluate": [row("conv1", 0.2, 1.0)]}
    lines = [line.strip() for line in rendered(*run_tables(profiles))]
    assert "operators of train" in lines
    assert "operators of evaluate" in lines


def test_bench_says_what_steps_take_and_what_clocks_cost() -> None:
    times = {"median": 1.5, "p90": 1.75, "p99": 200.0, "min": 0.0123}
    report = {
        "name": "[net]",
        "phase": "train",
        "batch_size": 64,
        "contexts": 1,
        "ranks": 1,
        "micro_batches": 1,
        "threads": 8,
        "threads_at_once": 2,
        "steps": 1000,
        "mxrun": {
            "step_ms": times,
            "samples_per_s": 42_000.0,
            "rss_peak_bytes": 100 << 20,
            "first_step_s": 0.5,
            "core_wait_share": 0.0,
        },
        "profile": {
            "steps": 50,
            "step_ms": times,
            "overhead": 0.021,
            "batch_ms": 0.1,
            "operators_ms": 1.2,
            "tape_ms": 1.3,
            "measure_ms": 0.05,
        },
        "operators": [row("conv1", 1.2, 1.0)],
        "tape": {"calls": 1200, "us_per_call": 0.02, "share": 0.0016},
        "roofline": roofline(),
        "peers": {},
    }
    text = "\n".join(rendered(*bench_tables(report)))
    for part in (
        "[net], train: 1,000 steps",
        "1.500 ms",
        "200.0 ms",
        "0.01230 ms",
        "42 k",
        "8, 2 at once",
    ):
        assert part in text
    assert "operators, the median of 50 steps" in text
    assert "Most time above the floors: Convolution forward 0.800 ms (53% of the step)" in text
    assert "operators 1.200 ms, between them 0.100 ms, loss and metrics 0.05000 ms" in text
    assert "The fastest takes 0.01230 ms, +2.1% against" in text
    assert "calls take 0.020 us each: 0.16% of the step" in text


def test_bench_on_several_contexts_says_when_the_functions_of_a_step_run() -> None:
    times = {"median": 1.5, "p90": 1.75, "p99": 2.0, "min": 1.0}
    row = {"name": "push and pull bucket 1", "calls": 1.0, "ms": 0.25, "start_ms": 0.5}
    report = {
        "name": "net",
        "phase": "train",
        "batch_size": 64,
        "contexts": 2,
        "ranks": 1,
        "micro_batches": 1,
        "threads": 1,
        "threads_at_once": 1,
        "steps": 10,
        "mxrun": {
            "step_ms": times,
            "samples_per_s": 42_000.0,
            "rss_peak_bytes": 100 << 20,
            "first_step_s": 0.5,
            "core_wait_share": None,
        },
        "functions": [row | {"end_ms": 0.75}],
        "communication": {"ms": 0.25, "hidden_share": 0.375},
    }
    lines = printed(*bench_tables(report)).splitlines()
    assert any(line.split() == ["contexts", "2"] for line in lines)
    (shown,) = (line for line in lines if "push and pull bucket 1" in line)
    assert shown.split()[-4:] == ["1", "0.250", "0.500", "0.750"]
