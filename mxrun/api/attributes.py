"""Advice for names that `mxrun` does not have, such as those of MXNet's modules."""

from __future__ import annotations

from collections.abc import Iterable

from mxrun.base.foreign_names import hint_for
from mxrun.base.near_names import nearest


def no_attribute(name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for an unknown attribute of the module `mxrun`, whose names are `known`."""
    problem = f"module 'mxrun' has no attribute {name!r}"
    hint = hint_for("module", name) or nearest(name, known)
    # With the module as `obj`, Python would add a suggestion by letters: cpu for gpu.
    return AttributeError(f"{problem}: {hint}" if hint else problem, name=name, obj=None)
