"""Scale of the gradients in an update: by default they are means over the records."""

from __future__ import annotations

from typing import Literal

from mxrun.base.dataclass import dataclass

Divisor = Literal["batch size", "batch parts", "records"]


@dataclass(frozen=True)
class GradientScale:
    """Rule for the factor of every gradient in an update.

    The losses' gradients are sums over the rows of a batch, padded rows adding zero, and those of
    all batch parts of an update are summed.

    divisor: `records`, for 1 / (number of records in the update); `batch parts`, for 1 / (number of
    parts with a record), if the gradients are means over the rows of each part already; `batch
    size`, if the factor is `fixed`, whatever the batches hold.
    """

    divisor: Divisor = "records"
    fixed: float | None = None

    def counted(self, valid: int) -> int:
        """Return what a batch part with `valid` records adds to the divisor."""
        return min(valid, 1) if self.divisor == "batch parts" else valid

    def factor(self, count: int) -> float:
        """Return the factor for the divisor `count`.

        It is finite without any record, where all gradients are zero.
        """
        return 1 / max(count, 1) if self.fixed is None else self.fixed


class GradientCounter:
    """Divisor of the gradients of one step, `count`, while its batch parts are loaded."""

    def __init__(self, scale: GradientScale) -> None:
        self._scale = scale
        self.count = 0

    def clear(self) -> None:
        """Begin a step."""
        self.count = 0

    def add(self, valid: int) -> None:
        """Count a batch part with `valid` records."""
        self.count += self._scale.counted(valid)

    @property
    def factor(self) -> float:
        """Factor of the gradients of all parts so far."""
        return self._scale.factor(self.count)
