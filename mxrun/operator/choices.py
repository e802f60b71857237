"""Selection of an implementation for each part of a kernel, for autotuning.

A `prepare_*` function prepares such a part through the request's `choices`. This object passes the
requested implementation to the part and records the alternatives. To obtain another candidate, the
autotuner prepares the kernel again with another selection; it needs no knowledge of how the kernel
is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from mxrun.operator.constraints import ImplementationConstraints


class Computation(Protocol):
    """Prepared part of a kernel."""

    def alternatives(self) -> tuple[str, ...]:
        """Return the names of all implementations of this part, itself included, best first."""


ComputationType = TypeVar("ComputationType", bound=Computation)


class Choices:
    """Requested implementation of each part of one kernel, and the alternatives of each."""

    def __init__(self, requested: Mapping[str, str] | None = None) -> None:
        self._requested = dict(requested or {})
        self._taken: dict[str, Computation] = {}

    def prepare(
        self,
        part: str,
        prepare: Callable[[ImplementationConstraints], ComputationType],
        scratch_bytes: int | None = None,
    ) -> ComputationType:
        """Prepare `part` with the requested implementation; `scratch_bytes` limits its scratch
        space.
        """
        computation = prepare(ImplementationConstraints(self._requested.get(part), scratch_bytes))
        self._taken[part] = computation
        return computation

    def offered(self) -> dict[str, tuple[str, ...]]:
        """Return the names of all available implementations by part, the preferred one first."""
        return {part: taken.alternatives() for part, taken in self._taken.items()}
