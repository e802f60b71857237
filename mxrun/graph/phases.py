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
# Computes once the values that depend on parameters alone, for a plan that changes no parameter.
PREPARE = "prepare"
