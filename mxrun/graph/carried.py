"""Names of the states that carry values from each run of a phase to the next."""

from __future__ import annotations

# A user's names have no colon.
_EVALUATION = ":evaluation"


def evaluation_state(name: str) -> str:
    """Return the name of the tensor in which evaluation has the carried state `name`.

    What training carries is thus the same after an evaluation in the middle of it.
    """
    return f"{name}{_EVALUATION}"


def is_evaluation_state(name: str) -> bool:
    """Return whether a tensor is a carried state of evaluation, which no checkpoint holds."""
    return name.endswith(_EVALUATION)


def state_of(name: str) -> str:
    """Return the name of a carried state in the network."""
    return name.removesuffix(_EVALUATION)
