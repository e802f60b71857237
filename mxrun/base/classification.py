"""Interpretation of a classification loss's tensors, for metrics and labels."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class Classification:
    """Shapes of a classification: output [samples, classes, positions], labels [samples,
    positions].

    Both are row-major. A row of the batch consists of one or more samples, the same number in every
    row. labelled: whether the labels are class indices, one per sample and position. ignored: label
    of predictions that do not count, if any.
    """

    samples: int
    classes: int
    positions: int
    labelled: bool = True
    ignored: int | None = None

    @property
    def predictions(self) -> int:
        """Number of predictions in a batch."""
        return self.samples * self.positions


@dataclass(frozen=True)
class Likelihood:
    """View of a loss that is the sum of the cross-entropies of its labels, and gives nothing else.

    The probabilities of which it is made are not stored, so only their sum can be measured.
    """
