"""Numbers as short texts with units."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mxrun.base.sizes import UNITS
from mxrun.train.metric_kind import Figure

_COUNTS = ("", "k", "M", "G", "T")
# Metrics below this round to 0. The epsilon in cross_entropy's logarithm is 1e-12.
_ZERO_BELOW = 1e-11


def bytes_text(count: int) -> str:
    """Return bytes in the unit that leaves one to four digits: `1.23 MiB`."""
    value = float(count)
    for unit in UNITS[:-1]:
        if value < 1024:
            return f"{count} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} {UNITS[-1]}"


def records_text(count: int) -> str:
    """Return a number of records: `1 record`, `1,200 records`."""
    return f"{count:,} record{'' if count == 1 else 's'}"


def count_text(count: float) -> str:
    """Return a count with three digits: `1.23 M`."""
    value = float(count)
    for unit in _COUNTS[:-1]:
        if value < 999.5:
            return f"{value:.3g} {unit}".rstrip()
        value /= 1000
    return f"{value:.3g} {_COUNTS[-1]}"


def metric_text(value: float) -> str:
    """Return a loss or metric as text: `0.9833`, `1.24e-05`."""
    # Such a value comes from the epsilon alone.
    size = 0.0 if abs(value) < _ZERO_BELOW else abs(value)
    return f"{value:.2e}" if 0 < size < 1e-3 else f"{value if size else 0.0:.4f}"


def metrics_text(metrics: Mapping[str, Figure], without: Collection[str] = ()) -> str:
    """Return the scalar metrics on one line: `loss 0.1234  accuracy 0.9800`.

    without: names to leave out, such as those of metrics that are the loss by definition.
    """
    return "  ".join(
        f"{name} {metric_text(value)}"
        for name, value in metrics.items()
        if not isinstance(value, list) and name not in without
    )


def milliseconds_text(milliseconds: float) -> str:
    """Return milliseconds with three or more digits: 0.00123, 0.123, 12.3, 1234."""
    if milliseconds < 0.1:
        return f"{milliseconds:.5f}"
    return f"{milliseconds:.3f}" if milliseconds < 100 else f"{milliseconds:.1f}"


def phases_text(shares: Iterable[tuple[str, float]]) -> str:
    """Return a line per phase with its share: `forward 40%`, `backward 55%`."""
    sums: dict[str, float] = {}
    for phase, share in shares:
        sums[phase] = sums.get(phase, 0.0) + share
    return "\n".join(f"{phase} {share:.0%}" for phase, share in sums.items())


def duration_text(seconds: float) -> str:
    """Return a duration in seconds as text: `4.2 s`, `3:05`, `1:02:03`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
