"""Summary of a warm start: the source and the treatment of each variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mxrun.base.merged_names import merged_names
from mxrun.base.near_names import listed
from mxrun.report.figures import bytes_text
from mxrun.train.observer import VariableGroup, WarmStart

_TITLES = {
    "loaded": "loaded",
    "initialised": "initialised",
    "left_out": "left out",
    "frozen": "frozen",
    "frozen_unloaded": "frozen, but not loaded",
    "trainable": "trainable",
    "statistics": "moving statistics",
}
_MAX_PATTERNS = 6


def warm_start_lines(start: WarmStart) -> Iterator[str]:
    """Yield the source, a line per group of variables, and one per variable of other shape."""
    yield f"starts from {start.source}"
    titles = [_TITLES[group.kind] for group in start.groups]
    width = max(map(len, titles), default=0)
    counts = [_count_text(len(group.names)) for group in start.groups]
    sizes = [_size_text(group) for group in start.groups]
    for title, count, size, group in zip(titles, counts, sizes, start.groups, strict=True):
        figures = f"{count:>{max(map(len, counts))}}  {size:>{max(map(len, sizes))}}"
        yield f"  {title:<{width}}  {figures}  {names_text(group.names)}"
    for text in start.misshapen:
        yield f"  not loaded, of another shape: {text}"


def names_text(names: Sequence[str]) -> str:
    """Return the names merged into patterns, only the first ones: `conv*_weight, fc1_bias`."""
    return listed(merged_names(names), _MAX_PATTERNS)


def _count_text(count: int) -> str:
    return f"{count} tensor{' ' if count == 1 else 's'}"


def _size_text(group: VariableGroup) -> str:
    return "" if group.nbytes is None else bytes_text(group.nbytes)
