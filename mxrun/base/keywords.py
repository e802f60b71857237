"""The words that a config keeps for itself, among its layers and in its data."""

from __future__ import annotations

# How an implementation is chosen where none is named: the first that accepts the work, or the
# fastest of all candidates, which are timed.
PREFERRED, AUTO = "preferred", "auto"

RESERVED_KEYS = ("name", "inputs", "outputs", "precision", "implementation", "fused")
"""Keys of every layer beside its operator's parameters."""

REST = "rest"
"""The split of `data.eval` that is what the one of `data.train` leaves."""

REPEAT = "repeat"
"""What stands in an operator's place to repeat layers."""

_KEPT = frozenset((*RESERVED_KEYS, REPEAT))

OPERATOR_NAME = f"letters, digits and _, and none of {', '.join(sorted(_KEPT))}"
"""What `is_operator_name` accepts, in words."""


def is_operator_name(value: object) -> bool:
    """Whether an operator may be called so: a layer is told by it, and code of it is named so."""
    return (
        isinstance(value, str) and value.isascii() and value.isidentifier() and value not in _KEPT
    )
