"""Which of several pieces of code for one computation is wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ImplementationConstraints:
    """The first, in the library's order of preference, of those that fit.

    name: only the code of that name. scratch_bytes: only code that needs no more scratch, or, where
    all need more, that which needs least.
    """

    name: str | None = None
    scratch_bytes: int | None = None

    def allows(self, scratch_bytes: int) -> bool:
        """Whether code with so much scratch fits."""
        return self.scratch_bytes is None or scratch_bytes <= self.scratch_bytes


UNCONSTRAINED = ImplementationConstraints()
