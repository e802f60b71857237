"""What a kernel is made of where there are several pieces of code for one of its parts.

`prepare_*` takes such a part through the request's `choices`, which says what is wanted and then
knows what else there is. So whoever prepares a kernel again under other wishes has another
candidate, and nobody need know how kernels are built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from mxrun.backend.constraints import ImplementationConstraints


class Computation(Protocol):
    """A prepared part of a kernel."""

    def alternatives(self) -> tuple[str, ...]:
        """The names of all code that could be in its place, itself among it, best first."""


ComputationType = TypeVar("ComputationType", bound=Computation)


class Choices:
    """The code wanted for each part of one kernel, and what there was to choose from."""

    def __init__(self, wanted: Mapping[str, str] | None = None) -> None:
        self._wanted = dict(wanted or {})
        self._taken: dict[str, Computation] = {}

    def take(
        self,
        part: str,
        prepare: Callable[[ImplementationConstraints], ComputationType],
        scratch_bytes: int | None = None,
    ) -> ComputationType:
        """A part of the kernel as it is wanted; `scratch_bytes` limits what it may need."""
        computation = prepare(ImplementationConstraints(self._wanted.get(part), scratch_bytes))
        self._taken[part] = computation
        return computation

    def offered(self) -> dict[str, tuple[str, ...]]:
        """By part the names of all code there was, the preferred first."""
        return {part: taken.alternatives() for part, taken in self._taken.items()}
