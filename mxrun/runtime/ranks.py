"""Ranks: processes that train together, and the messages between them.

Almost everything is collective: every rank calls the same functions in the same order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import InternalError
from mxrun.base.slices import slice_bounds

Array = NDArray[Any]
BETWEEN_RANKS = " between ranks"
"""End of the names of operations that send messages."""


class RankGroup(ABC):
    """Group of processes, of which this one has number `rank`, from 0, of `size`.

    ends_together: whether all ranks end for the same reason, which rank 0 tells.
    """

    rank: int
    size: int
    ends_together = False

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank has called this."""

    @abstractmethod
    def broadcast(self, array: Array) -> None:
        """Overwrite an array, C-contiguous, with that of rank 0."""

    @abstractmethod
    def gather(self, row: Array) -> Array:
        """Return the rows of all ranks, [size, *row.shape]; valid until the next call."""

    @abstractmethod
    def gather_texts(self, text: str) -> list[str]:
        """Return the texts of all ranks."""

    @abstractmethod
    def sum_slices(self, array: Array, received: Array) -> None:
        """Replace this rank's slice of an array, 1-d, by the sum over the ranks in the order of
        `fold_tree`.

        The slices are those of `slice_elements`. received: scratch of `received_elements` elements
        of the same type.
        """

    @abstractmethod
    def share_slices(self, array: Array, bounds: Sequence[int]) -> None:
        """Give all ranks the slices `array[bounds[rank] : bounds[rank + 1]]` of an array, 1-d."""

    @abstractmethod
    def sum(self, array: Array, received: Array) -> None:
        """Replace an array, 1-d, by the sum over the ranks; `received` as for `sum_slices`."""

    @abstractmethod
    def duplicate(self) -> RankGroup:
        """Return the same processes with messages of their own."""

    @abstractmethod
    def tell_next(self, text: str) -> None:
        """Send a text to the next rank, and do not wait; it is dropped if the last has not left.

        Not collective, as `told_by_previous`.
        """

    @abstractmethod
    def told_by_previous(self) -> list[str]:
        """Return the texts that have come from the rank before."""

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """End the processes of all ranks at once; may be called by one of them."""

    def received_elements(self, array: Array) -> int:
        """Return the elements that a rank receives at most to sum an array."""
        return self.size * slice_elements(array, self.size)[1]


def slice_elements(array: Array, ranks: int) -> list[int]:
    """Return the bounds of the slices of an array that each of several ranks adds up."""
    return [bound // array.itemsize for bound in slice_bounds(array.nbytes, ranks)]


class OneRank(RankGroup):
    """The only process."""

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Return at once."""

    def broadcast(self, array: Array) -> None:
        """Leave the array as it is."""

    def gather(self, row: Array) -> Array:
        """Return the row as the only one."""
        return row[np.newaxis]

    def gather_texts(self, text: str) -> list[str]:
        """Return the text."""
        return [text]

    def sum_slices(self, array: Array, received: Array) -> None:
        """Leave the array as it is."""

    def share_slices(self, array: Array, bounds: Sequence[int]) -> None:
        """Leave the array as it is."""

    def sum(self, array: Array, received: Array) -> None:
        """Leave the array as it is."""

    def duplicate(self) -> OneRank:
        """Return itself."""
        return self

    def tell_next(self, text: str) -> None:
        """Do nothing."""

    def told_by_previous(self) -> list[str]:
        """Return nothing."""
        return []

    def abort(self, code: int) -> NoReturn:
        """Raise InternalError: an error ends the only process by itself."""
        raise InternalError(f"the only process cannot abort others (code {code})")
