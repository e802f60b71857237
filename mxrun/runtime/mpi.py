"""Messages between ranks over MPI, through mpi4py: the only module that loads it."""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import Any, NoReturn

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.fold_tree import tree_sum
from mxrun.runtime.ranks import Array, RankGroup, slice_elements

# A message within a machine often comes while it is looked for so many times; then the waits
# between two looks grow.
_LOOKS = 20
_LEAST_PAUSE_S, _MOST_PAUSE_S = 2e-5, 2e-4


@cache
def all_ranks() -> MpiRanks:
    """Return the processes that mpirun has started; this one alone without it.

    Raises UserError without mpi4py or without a library of MPI.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # RuntimeError: mpi4py is there, but finds no library of MPI.
        raise UserError(
            Diagnostic(
                "several processes need mpi4py and a library of MPI, which cannot be loaded",
                got=str(error).splitlines()[0],
                hint="pip install 'mxrun[dist]'; on a cluster that has an MPI of its own, pip "
                "install mpi4py",
            )
        ) from error
    return MpiRanks(MPI, MPI.COMM_WORLD)


class MpiRanks(RankGroup):
    """Processes of a communicator, which is duplicated: its messages meet no others.

    Sums are made of slices: each rank receives its slice from all others, adds these up, and sends
    the sum to all. That moves as many bytes as MPI's own sums, whose order is not fixed.
    """

    def __init__(self, mpi: Any, communicator: Any) -> None:
        self._mpi, self._ranks = mpi, communicator.Dup()
        self.rank: int = self._ranks.rank
        self.size: int = self._ranks.size
        self._sending: Any = None
        self._rows: dict[tuple[tuple[int, ...], str], Array] = {}

    def duplicate(self) -> MpiRanks:
        """Return the same processes with messages of their own."""
        return MpiRanks(self._mpi, self._ranks)

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        _finish(self._ranks.Ibarrier())

    def broadcast(self, array: Array) -> None:
        """Overwrite an array, C-contiguous, with that of rank 0."""
        if array.nbytes:
            _finish(self._ranks.Ibcast(self._bytes(array), 0))

    def _bytes(self, array: Array) -> Any:
        return [array.reshape(-1).view(np.uint8), self._mpi.BYTE]

    def gather(self, row: Array) -> Array:
        """Return the rows of all ranks, [size, *row.shape]; valid until the next call."""
        key = row.shape, row.dtype.str
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = np.zeros((self.size, *row.shape), row.dtype)
        _finish(self._ranks.Iallgather(self._bytes(row), self._bytes(rows)))
        return rows

    def gather_texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, which are sent as UTF-8."""
        content = np.frombuffer(text.encode(), np.uint8)
        sizes = self.gather(np.array([content.size])).reshape(-1).tolist()
        found, starts = bytearray(sum(sizes)), np.cumsum([0, *sizes])[:-1].tolist()
        byte = self._mpi.BYTE
        _finish(self._ranks.Iallgatherv([content, byte], [found, sizes, starts, byte]))
        pairs = zip(starts, sizes, strict=True)
        return [bytes(found[start : start + size]).decode() for start, size in pairs]

    def sum(self, array: Array, received: Array) -> None:
        """Replace an array, 1-d, by the sum over the ranks in the order of `fold_tree`."""
        if self.size == 1:
            return
        share, width, byte = slice_elements(array, self.size), array.itemsize, self._mpi.BYTE
        bounds = [min(array.size, share * rank) for rank in range(self.size + 1)]
        begin, end = bounds[self.rank : self.rank + 2]
        own, ranks = end - begin, range(self.size)
        starts = [width * bounds[rank] for rank in ranks]
        counts = [width * (bounds[rank + 1] - bounds[rank]) for rank in ranks]
        own_starts = [width * own * rank for rank in ranks]
        parts = [array.view(np.uint8), counts, starts, byte]
        # Large messages move only while somebody looks: not before all are there.
        self.barrier()
        self._ranks.Alltoallv(
            parts, [received.view(np.uint8), [width * own] * self.size, own_starts, byte]
        )
        array[begin:end] = tree_sum([received[rank * own : (rank + 1) * own] for rank in ranks])
        self._ranks.Allgatherv(self._mpi.IN_PLACE, parts)

    def tell_next(self, text: str) -> None:
        """Send a text to the next rank, and do not wait; it is dropped if the last has not left."""
        if self._sending is None or self._sending.Test():
            content = text.encode()
            self._sending = self._ranks.Isend(
                [content, self._mpi.BYTE], (self.rank + 1) % self.size
            )

    def told_by_previous(self) -> list[str]:
        """Return the texts that have come from the rank before."""
        previous, status, found = (self.rank - 1) % self.size, self._mpi.Status(), []
        while self._ranks.Iprobe(previous, status=status):
            content = bytearray(status.Get_count(self._mpi.BYTE))
            self._ranks.Recv([content, self._mpi.BYTE], previous)
            found.append(content.decode())
        return found

    def abort(self, code: int) -> NoReturn:
        """End the processes of all ranks at once; may be called by one of them."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._ranks.Abort(code)
        raise SystemExit(code)


def _finish(request: Any) -> None:
    """Wait for a message without occupying a core.

    MPI's own waits do nothing but look: with one thread that computes and one that waits on each
    core, steps took several times as long.
    """
    pause = _LEAST_PAUSE_S
    for _ in range(_LOOKS):
        if request.Test():
            return
    while not request.Test():
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE_S)
