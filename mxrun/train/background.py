"""Writing of checkpoints while the next steps run, from a copy of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.array_file import Arrays
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Engine, Pool, RunContext, Variable
from mxrun.runtime.engine.wait import wait_for
from mxrun.train.checkpoint import MEASURED_FILE
from mxrun.train.divergence import is_finite

Groups = Mapping[str, Arrays]
# Elements that are copied and checked at a time, so that they are still in a core's cache.
_PIECE = 1 << 16
_ALIGNMENT = 64


class StateCopy:
    """Copy of the arrays of a checkpoint in one block of host memory.

    groups: the copied arrays of each file. nbytes: size of the block, without the sums of metrics,
    which are not part of plans.
    """

    def __init__(self, groups: Groups) -> None:
        arrays = [
            array
            for file, group in groups.items()
            for array in group.values()
            if file != MEASURED_FILE
        ]
        self.nbytes = copy_bytes(array.nbytes for array in arrays)
        block, end = np.empty(self.nbytes, np.uint8), 0
        self.groups: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for file, group in groups.items():
            self.groups[file] = {}
            for name, array in group.items():
                if file == MEASURED_FILE:
                    self.groups[file][name] = np.empty_like(array)
                    continue
                begin, end = end, end + _aligned(array.nbytes)
                content = block[begin : begin + array.nbytes]
                self.groups[file][name] = content.view(array.dtype).reshape(array.shape)

    def take(self, groups: Groups) -> bool:
        """Copy all arrays; return whether all parameters and states are finite."""
        finite = True
        for file, group in groups.items():
            for name, array in group.items():
                source, target = array.reshape(-1), self.groups[file][name].reshape(-1)
                for begin in range(0, source.size, _PIECE):
                    piece = target[begin : begin + _PIECE]
                    np.copyto(piece, source[begin : begin + _PIECE])
                    finite = finite and (file == MEASURED_FILE or is_finite(piece))
        return finite


def copy_bytes(sizes: Iterable[int]) -> int:
    """Return the bytes of a block that holds copies of arrays of these sizes."""
    return sum(map(_aligned, sizes))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class BackgroundWriter:
    """Writes one checkpoint at a time as an operation of the engine.

    The copy is taken before the next step may change the state (`reads` are the variables of what
    is saved); what is slow, hashing and bringing the bytes to disk, runs beside the next steps. A
    failure is raised by the next `wait`; `has_failed` tells, at the cost of reading a field,
    whether there is one.
    """

    def __init__(self, engine: Engine, reads: Sequence[Variable], groups: Groups) -> None:
        self._engine, self._copy = engine, StateCopy(groups)
        self._copied = engine.new_variable("copy of the state")
        self._written = engine.new_variable("checkpoint")
        self._groups: Groups = {}
        self._is_finite = True
        self._save: Callable[[Groups], object] = lambda groups: None
        self._take = engine.new_operator(
            self._take_copy, reads=reads, writes=[self._copied], name="copy state", pool=Pool.COPY
        )
        self._write = engine.new_operator(
            lambda run: self._save(self._copy.groups),
            reads=[self._copied],
            writes=[self._written],
            name="write checkpoint",
            pool=Pool.IO,
        )

    def take(self, groups: Groups) -> bool:
        """Copy the arrays; return whether all parameters and states are finite."""
        self._groups = groups
        self._engine.run_or_push(self._take)
        wait_for(self._engine, self._copied)
        self._groups = {}
        return self._is_finite

    def _take_copy(self, run: RunContext) -> None:
        self._is_finite = self._copy.take(self._groups)

    def write(self, save: Callable[[Groups], object]) -> None:
        """Push `save`, which writes the copy that was taken."""
        self._save = save
        self._engine.push(self._write)

    @property
    def has_failed(self) -> bool:
        """Whether the last write has ended with an exception."""
        return self._written.failure is not None

    def wait(self) -> None:
        """Wait until nothing is being written; raises what the last write raised."""
        wait_for(self._engine, self._written)

    def close(self) -> None:
        """Wait until nothing is being written, whether or not that succeeds."""
        try:
            self._engine.wait_for_variable(self._written)
        except JobError:
            # The caller has another error to report, or has reported this one.
            return
