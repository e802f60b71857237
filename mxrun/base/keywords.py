"""Reserved words of the config, in layers and in its data section."""

from __future__ import annotations

# Selection of an implementation if none is named: the first that supports the operation, or the
# fastest of all candidates, by autotuning.
PREFERRED, AUTO = "preferred", "auto"

RESERVED_KEYS = ("name", "inputs", "outputs", "precision", "implementation", "fused")
"""Keys of every layer in addition to its operator's parameters."""

REST = "rest"
"""Split of `data.eval`: the records that the split of `data.train` leaves."""

REPEAT = "repeat"
"""Key that repeats layers, in place of an operator's name."""

RECURRENT = "recurrent"
"""Key of layers that are applied to every step of a sequence, in place of an operator's name."""

_KEPT = frozenset((*RESERVED_KEYS, REPEAT, RECURRENT))

OPERATOR_NAME = f"letters, digits and _, and none of {', '.join(sorted(_KEPT))}"
"""Names that `is_operator_name` accepts, in words."""


def is_operator_name(value: object) -> bool:
    """Return whether an operator may have this name, which identifies layers and generated code."""
    return (
        isinstance(value, str) and value.isascii() and value.isidentifier() and value not in _KEPT
    )
