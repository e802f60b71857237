"""Tensors of a plan as host arrays that are filled or read again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

from mxrun.executor.executor import Executor


class HostArrays:
    """Pinned tensors of a plan as host arrays, made once.

    arrays: by name. On a device whose memory the host can view they are the tensors themselves, so
    that `load` and `store` have nothing to do; on others they are copies.
    """

    def __init__(self, executor: Executor, names: Iterable[str]) -> None:
        mirrors = {name: executor.tensor(name).mirror() for name in names}
        self.arrays: dict[str, npt.NDArray[Any]] = {
            name: mirror.array for name, mirror in mirrors.items()
        }
        self._copied = () if executor.device.has_host_memory else tuple(mirrors.values())

    def load(self) -> None:
        """Copy the tensors to the arrays."""
        for mirror in self._copied:
            mirror.load()

    def store(self) -> None:
        """Copy the arrays to the tensors."""
        for mirror in self._copied:
            mirror.store()
