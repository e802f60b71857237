"""Quantiles of step times."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def percentiles(step_ms: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return median, p90, p99 and min of step times without the first step, which warms up."""
    return quantiles(step_ms[1:] if len(step_ms) > 1 else step_ms)


def quantiles(milliseconds: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return median, p90, p99 and min."""
    times = np.sort(milliseconds)
    shares = {"median": 0.5, "p90": 0.9, "p99": 0.99, "min": 0.0}
    return {name: _quantile(times, share) for name, share in shares.items()}


def _quantile(ordered: npt.NDArray[np.float64], share: float) -> float:
    """Return a quantile of sorted times, interpolated linearly between the nearest two.

    NumPy's own function imports masked arrays, which takes 30 ms.
    """
    if len(ordered) == 0:
        return math.nan
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return float(ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower))
