"""Table of autotuned kernels: steps that run on a kernel other than the preferred one."""

from __future__ import annotations

from typing import Any

from consoles import printed

from mxrun.report.candidates import candidates_tables


def row(name: str, taken: str, **milliseconds: float) -> dict[str, Any]:
    candidates = [{"implementation": each, "ms": ms} for each, ms in milliseconds.items()]
    return {"name": name, "implementation": taken, "candidates": candidates}


def table_of(rows: list[dict[str, Any]]) -> str:
    return printed(*candidates_tables(rows))


def test_P17_who_times_nothing_is_told_nothing() -> None:
    assert candidates_tables([row("conv", "brgconv"), row("relu", "jit")]) == []


def test_P17_steps_that_change_are_listed_those_that_win_most_first() -> None:
    text = table_of(
        [
            row("conv1", "jit", brgconv=2.0, jit=1.5, avx2=1.9),
            row("conv2", "jit", brgconv=4.0, jit=1.25),
            row("conv3", "brgconv", brgconv=1.0, jit=3.0),
            row("relu", "jit"),
        ]
    )
    assert "Candidates were timed for 3 of 4 steps; 2 run on a kernel other than" in text
    lines = text.splitlines()
    first, second = (
        next(i for i, line in enumerate(lines) if n in line) for n in ("conv2", "conv1")
    )
    assert first < second
    assert lines[first].split() == ["conv2", "jit", "brgconv", "1.250", "4.000"]
    assert "conv3" not in text


def test_P17_where_nothing_changes_only_the_count_is_told() -> None:
    text = table_of([row("conv", "brgconv", brgconv=1.0, jit=3.0)])
    assert "timed for 1 of 1 steps; 0 run" in text
    assert "kernels selected" not in text
