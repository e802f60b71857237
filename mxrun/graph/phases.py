"""Names of the phases of a plan."""

from __future__ import annotations

TRAIN = "train"
# Adds the gradients of a batch, or of a micro-batch, to the running sums; TRAIN runs for the last
# of several.
ACCUMULATE = "accumulate"
# Updates the parameters with the sums of gradients of several contexts; TRAIN then ends with the
# gradients of its own part of a batch.
UPDATE = "update"
EVALUATE = "evaluate"
# Computes one position of a sequence with what earlier runs have stored.
GENERATE = "generate"
# Stores what the positions of a prompt leave for later ones, several positions a run.
PREFILL = "prefill"
# Computes once the values that depend on parameters alone, for a plan that changes no parameter.
PREPARE = "prepare"


def bucket_phase(phase: str, length: int | None) -> str:
    """Return the name of a phase over sequences of `length`; None for the largest length."""
    return phase if length is None else f"{phase}:{length}"


def base_phase(phase: str) -> str:
    """Return the name of a phase, whatever the length of its sequences."""
    return phase.partition(":")[0]
