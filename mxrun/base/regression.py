"""How a loss over numbers sees its tensors, so that metrics can be read like it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regression:
    """Output and labels as [samples, elements], row-major both; a sample is a row of the batch.

    `probabilities`: whether the output lies between 0 and 1, as the chance that the label is 1.
    """

    samples: int
    elements: int
    probabilities: bool = False

    @property
    def is_binary(self) -> bool:
        """Whether each sample has one chance, and so one of two classes."""
        return self.probabilities and self.elements == 1
