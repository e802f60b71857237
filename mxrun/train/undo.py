"""Undo of a step that ends early because a later part of its batch is not available."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.train.host_arrays import HostArrays

Array = npt.NDArray[Any]


class StepUndo:
    """Copies of the values that the parts of a step change before the last part updates parameters.

    These are auxiliary and carried states and measured sums. Nothing is allocated per step.
    """

    def __init__(self, states: HostArrays, measured: Mapping[str, Array]) -> None:
        self._states = states
        self._arrays = [*states.arrays.values(), *measured.values()]
        self._copies = [array.copy() for array in self._arrays]

    def begin(self) -> None:
        """Save the state before a step's first part."""
        self._states.load()
        for array, copy in zip(self._arrays, self._copies, strict=True):
            np.copyto(copy, array)

    def undo(self) -> None:
        """Restore the saved state."""
        for array, copy in zip(self._arrays, self._copies, strict=True):
            np.copyto(array, copy)
        self._states.store()
