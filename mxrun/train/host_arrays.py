"""Tensors of a plan as host arrays that are filled or read again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.graph.graph import STATES, MemoryClass
from mxrun.io.loading.iterator import DataIterator

# Tensors that persist from step to step.
LEARNED = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, *STATES)


class HostArrays:
    """Pinned tensors of a plan as host arrays, made once.

    On a device whose memory the host can view they are the tensors themselves, so that `load` and
    `store` have nothing to do; on others they are copies.
    """

    def __init__(
        self,
        executor: Executor,
        names: Iterable[str],
        specs: Mapping[str, TensorSpec] | None = None,
    ) -> None:
        """`specs`: those of tensors that are smaller than planned; they begin at the same place."""
        plan = executor.plan
        specs = plan.specs if specs is None else specs
        mirrors = {
            name: executor.tensor_at(plan.offset(name), specs[name]).mirror() for name in names
        }
        self._arrays = {name: mirror.array for name, mirror in mirrors.items()}
        self._copied = () if executor.device.has_host_memory else tuple(mirrors.values())

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, which may be changed: earlier ones have been stored."""
        for mirror in self._copied:
            mirror.wait()
        return self._arrays

    def load(self) -> None:
        """Copy the tensors to the arrays."""
        for mirror in self._copied:
            mirror.load()

    def store(self) -> None:
        """Copy the arrays to the tensors."""
        for mirror in self._copied:
            mirror.store()


def staged_arrays(
    executor: Executor, batch: Mapping[str, str], specs: Mapping[str, TensorSpec]
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a batch that is made ahead, by the names of the inputs.

    batch: their tensors' names. They are tensors of the plan where the host can write to them, and
    else arrays of the host of `specs`.
    """
    device = executor.device
    if device.has_host_memory:
        return {name: executor.tensor(tensor).mirror().array for name, tensor in batch.items()}
    return {name: device.host_array(specs[name]) for name in batch}


def copy_pinned(source: Executor, targets: Sequence[Executor], *kinds: MemoryClass) -> None:
    """Copy the pinned tensors of some memory classes to the other executors of one plan."""
    for name in pinned(source, *kinds) if targets else ():
        values = source.tensor(name).values()
        for target in targets:
            target.tensor(name).write(values)


def pinned(executor: Executor, *kinds: MemoryClass) -> list[str]:
    """Return the names of a plan's pinned tensors of some memory classes.

    States that are carried within an evaluation are left out: none of them outlasts it.
    """
    return executor.plan.persistent(*kinds)


def slots(
    executor: Executor, iterator: DataIterator, specs: Mapping[str, TensorSpec] | None = None
) -> HostArrays:
    """Return the I/O slots that an iterator fills; storing them brings a batch to the device.

    specs: of the batches, if their sequences are shorter than the longest.
    """
    names = [name for name in iterator.specs if name in executor.plan.specs]
    return HostArrays(executor, names, specs)
