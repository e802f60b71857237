"""Validation of a run's summary.json, which may be edited or damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]


def is_summary(content: Mapping[str, Any]) -> bool:
    """Return whether all fields shown of a finished run exist and have the right type."""
    return all(check(content.get(name)) for name, check in _CHECKS.items())


def is_count(value: Any, minimum: int = 0) -> bool:
    """Return whether a value read from JSON is an integer of 64 bits, at least `minimum`."""
    return type(value) is int and minimum <= value < 1 << 63


def is_number(value: Any) -> bool:
    """Return whether a value read from JSON is a float, or an integer of 64 bits."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 63)


def _is_number_or_null(value: Any) -> bool:
    return value is None or is_number(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_metric(value: Any) -> bool:
    """Return whether a value is a number, null (not finite), or a table."""
    return _is_number_or_null(value) or isinstance(value, list)


def _is_mapping(check: Check, *names: str) -> Check:
    """Return a check for mappings that have these names, and whose values all pass `check`."""

    def is_mapping(value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and all(name in value for name in names)
            and all(map(check, value.values()))
        )

    return is_mapping


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("steps", "epochs", "micro_batches", "threads"), is_count),
    "eval": _is_mapping(_is_metric),
    "step_ms": _is_mapping(_is_number_or_null, "median", "p90", "p99", "min"),
    "first_step_s": _is_number_or_null,
    "memory": _is_mapping(
        *(is_count, "planned_bytes", "touched_bytes", "lower_bound_bytes", "rss_peak_bytes")
    ),
    "storage": _is_mapping(_is_mapping(is_count, "requests", "requests_from_pool", "peak_bytes")),
    **dict.fromkeys(("run_dir", "ended", "data_wait_advice"), _is_text),
    **dict.fromkeys(("stopped_early", "synthetic_data"), lambda value: isinstance(value, bool)),
    "resumed_from": _or_null(is_count),
    "best": _or_null(lambda value: isinstance(value, Mapping)),
    "started_from": _or_null(lambda value: isinstance(value, Mapping)),
    **dict.fromkeys(("data_wait_share", "core_wait_share"), _is_number_or_null),
    "python_transforms": _or_null(_is_text),
    "data_stages": lambda value: isinstance(value, Mapping),
    "bad_records": _is_mapping(is_count),
    "variables": lambda value: isinstance(value, Mapping),
    **dict.fromkeys(
        ("classes", "same_as_loss"),
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
    ),
    "recompute": _or_null(
        _is_mapping(lambda value: True, "steps", "measured_extra", "predicted_extra")
    ),
}
