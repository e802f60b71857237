"""Constraints on which implementation of a primitive to use."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError


class Unsupported(InternalError):
    """Lack of an admissible implementation in a library; another backend is needed."""


@dataclass(frozen=True)
class ImplementationConstraints:
    """Selects the first admissible implementation in the library's order of preference.

    name: only the implementation of that name. scratch_bytes: only implementations with at most so
    much scratch memory or, if all need more, those that need the least.
    """

    name: str | None = None
    scratch_bytes: int | None = None

    def permits(self, scratch_bytes: int) -> bool:
        """Return whether an implementation with so much scratch memory is admissible."""
        return self.scratch_bytes is None or scratch_bytes <= self.scratch_bytes


UNCONSTRAINED = ImplementationConstraints()
