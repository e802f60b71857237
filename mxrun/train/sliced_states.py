"""Optimizer states of which each rank has those of its slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import parameter_bounds
from mxrun.graph.graph import MemoryClass
from mxrun.graph.update_rule import parameter_of
from mxrun.runtime.ranks import RankGroup
from mxrun.train.host_arrays import HostArrays, pinned

Array = npt.NDArray[Any]


class SlicedStates:
    """States of a plan that updates the slices of one rank.

    arrays: on the first rank, the entire states by name, once they are gathered; else empty.
    """

    def __init__(
        self, executor: Executor, ranks: RankGroup, specs: Mapping[str, TensorSpec]
    ) -> None:
        """`specs`: of the entire states, all float32."""
        self._ranks = ranks
        trained = {parameter_of(name) for name in specs}
        bounds = parameter_bounds(executor.plan, trained, ranks.size)
        self._bounds = {name: bounds[parameter_of(name)] for name in specs}
        self._own = HostArrays(executor, pinned(executor, MemoryClass.OPTIMIZER))
        self.arrays: dict[str, Array] = {}
        if ranks.rank == 0:
            self.arrays = {name: np.zeros(spec.shape, np.float32) for name, spec in specs.items()}
        self._scratch = np.empty(max((each[-1] for each in bounds.values()), default=0), np.float32)

    def gather(self) -> None:
        """Take the states of all slices from the ranks that have them."""
        self._own.load()
        for name, bounds in self._bounds.items():
            whole = self._whole(name)
            if name in self._own.arrays:
                whole[self._slice(name)] = self._own.arrays[name]
            self._ranks.share_slices(whole, bounds)

    def scatter(self) -> None:
        """Give each rank its slices of the states that the first one has."""
        for name in self._bounds:
            whole = self._whole(name)
            self._ranks.broadcast(whole)
            if name in self._own.arrays:
                self._own.arrays[name][...] = whole[self._slice(name)]
        self._own.store()

    def _whole(self, name: str) -> Array:
        """Return memory for an entire state, 1-d."""
        if name in self.arrays:
            return self.arrays[name].reshape(-1)
        return self._scratch[: self._bounds[name][-1]]

    def _slice(self, name: str) -> slice:
        return slice(*self._bounds[name][self._ranks.rank : self._ranks.rank + 2])
