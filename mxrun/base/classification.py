"""How a loss over classes sees its tensors, so that metrics and labels can be read like it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Classification:
    """Output as [samples, classes, positions], labels as [samples, positions], row-major both.

    A sample is part of one row of the batch, and every row has as many. `labelled`: whether the
    labels are numbers of classes, one for each sample and position. `ignored`: the label of
    predictions that do not count, if there is one.
    """

    samples: int
    classes: int
    positions: int
    labelled: bool = True
    ignored: int | None = None

    @property
    def predictions(self) -> int:
        """How many there are in a batch."""
        return self.samples * self.positions
