"""Names of the phases of a plan."""

from __future__ import annotations

TRAIN = "train"
# Adds the gradients of a batch, or of a micro-batch, to the running sums; TRAIN runs for the last
# of several.
ACCUMULATE = "accumulate"
EVALUATE = "evaluate"
# Computes once the values that depend on parameters alone, for a plan that changes no parameter.
PREPARE = "prepare"
