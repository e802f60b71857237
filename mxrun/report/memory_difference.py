"""Comparison of two arenas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mxrun.graph.naming import in_words
from mxrun.report.figures import bytes_text
from mxrun.report.memory import ARENA_SIZES
from mxrun.report.tables import titled_table

Report = Mapping[str, Any]

# Limit of the list; the JSON report is complete.
_MAX_TENSORS = 20


def memory_difference(report: Report, other: Report) -> dict[str, Any]:
    """Return the differences of two reports of `inspect-memory --json`.

    Bytes are pairs: of `report` and of `other`. Tensors at the peak are matched by name.
    """
    return {
        "name": other["name"],
        "figures": {key: [report[key], other[key]] for key in ARENA_SIZES},
        "classes": {
            name: {
                key: [figures[key], other["classes"][name][key]]
                for key in ("total_bytes", "peak_bytes")
            }
            for name, figures in report["classes"].items()
        },
        "peak": _peaks(report["peak"], other["peak"]),
    }


def difference_tables(report: Report) -> list[RenderableType]:
    """Return tables of a report's `diff`: arena, classes, and tensors that differ at the peak."""
    difference = report["diff"]
    names = (report["name"], difference["name"])
    peak = difference["peak"]
    arena = _table("arena", names)
    for key, label in ARENA_SIZES.items():
        arena.add_row(label, *_sizes(difference["figures"][key]))
    classes = _table("classes, at the peak", names)
    for name, figures in difference["classes"].items():
        if any(figures["peak_bytes"]):
            classes.add_row(name.replace("_", " "), *_sizes(figures["peak_bytes"]))
    classes.add_section()
    classes.add_row("total", *_sizes(peak["bytes"]))
    where = " against ".join(
        f"{phase}, {in_words(operator)}"
        for phase, _, operator in (each.partition(", ") for each in peak["operators"])
    )
    tensors = _table(f"tensors that differ at the peak: {where}", names)
    for tensor in peak["tensors"][:_MAX_TENSORS]:
        tensors.add_row(Text(in_words(tensor["tensor"])), *_sizes(tensor["bytes"]))
    if rest := peak["tensors"][_MAX_TENSORS:]:
        sums = [sum(tensor["bytes"][side] for tensor in rest) for side in (0, 1)]
        tensors.add_row(f"{len(rest)} others", *_sizes(sums), style="dim")
    return [arena, classes, tensors] if peak["tensors"] else [arena, classes]


def _table(title: str, names: Sequence[str]) -> Table:
    table = titled_table(title)
    table.add_column("what")
    for name in names:
        table.add_column(Text(name), justify="right")
    table.add_column("difference", justify="right")
    return table


def _sizes(pair: Sequence[int]) -> tuple[str, str, str]:
    """Return both sizes and their difference as text; a size of zero is left empty."""
    first, second = pair
    difference = second - first
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    return (
        bytes_text(first) if first else "",
        bytes_text(second) if second else "",
        f"{sign}{bytes_text(abs(difference))}",
    )


def _peaks(peak: Report, other: Report) -> dict[str, Any]:
    """Return both peaks, and the tensors live at one alone or of different sizes, largest first."""
    sizes, others = _bytes_of(peak), _bytes_of(other)
    changed = [
        {"tensor": tensor, "bytes": [sizes.get(tensor, 0), others.get(tensor, 0)]}
        for tensor in dict.fromkeys((*sizes, *others))
        if sizes.get(tensor) != others.get(tensor)
    ]
    return {
        "operators": [f"{each['phase']}, {each['operator']}" for each in (peak, other)],
        "bytes": [peak["bytes"], other["bytes"]],
        "tensors": sorted(changed, key=lambda each: -abs(each["bytes"][1] - each["bytes"][0])),
    }


def _bytes_of(peak: Report) -> dict[str, int]:
    """Return the bytes of each tensor at the peak, summed over blocks of the same name."""
    sizes: dict[str, int] = {}
    for live in peak["live"]:
        sizes[live["tensor"]] = sizes.get(live["tensor"], 0) + live["bytes"]
    return sizes
