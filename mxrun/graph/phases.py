"""Names of the phases of a plan."""

from __future__ import annotations

TRAIN = "train"
# A batch, or part of one, whose gradients are only added to the running sums; TRAIN is the last of
# several.
ACCUMULATE = "accumulate"
EVALUATE = "evaluate"
# Computes once what the parameters decide alone, for a plan whose phases change none of them.
PREPARE = "prepare"
