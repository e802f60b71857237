"""Interval between two actions of a training run."""

from __future__ import annotations

from typing import ClassVar, Literal

from mxrun.base.dataclass import dataclass

Unit = Literal["steps", "epochs", "minutes"]


@dataclass(frozen=True)
class Interval:
    """Number of steps, epochs or minutes, written `1 epoch`, `500 steps` or `10 minutes`."""

    count: int
    unit: Unit

    written: ClassVar[str] = "a number of steps, epochs or minutes, such as 1 epoch"

    def __str__(self) -> str:
        return f"{self.count} {self.unit[:-1] if self.count == 1 else self.unit}"
