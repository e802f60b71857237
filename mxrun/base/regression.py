"""Interpretation of a regression loss's tensors, for metrics."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class Regression:
    """Shapes of a regression: output and labels [samples, elements], row-major; a sample is a row.

    probabilities: whether the output is the probability, 0 to 1, that the label is 1. positions:
    elements in which one kind of label is predicted, such as the pixels of a mask; the elements
    [labels, positions] are row-major.
    """

    samples: int
    elements: int
    probabilities: bool = False
    positions: int = 1

    @property
    def labels(self) -> int:
        """Number of outputs for each position, such as the masks of a picture."""
        return self.elements // self.positions

    @property
    def is_binary(self) -> bool:
        """Return whether each sample has a single probability: binary classification."""
        return self.probabilities and self.elements == 1
