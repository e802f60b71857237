"""Counters of the storage pools while a run lasts, for its report."""

from __future__ import annotations

from collections.abc import Iterable

from mxrun.base.context import Context
from mxrun.device.storage import storage_pools
from mxrun.run.train_summary import PoolCounters
from mxrun.runtime.storage import StorageStatistics

_UNUSED = StorageStatistics(
    bytes_in_use=0,
    blocks_in_use=0,
    peak_bytes=0,
    bytes_reserved=0,
    system_allocations=0,
    requests=0,
)


class StorageCounters:
    """Activity of the process's pools since this was made.

    The steps of a run use the arenas of its plan, so that its contexts count nothing unless
    somebody uses arrays beside it, such as a callback.
    """

    def __init__(self) -> None:
        self._before = dict(storage_pools().statistics())

    def report(self, contexts: Iterable[Context]) -> dict[str, PoolCounters]:
        """Return the counters of these contexts, and of others that have a pool.

        Requests and allocations are counted from the beginning; bytes are those of now, and the
        peak is the pool's.
        """
        now = storage_pools().statistics()
        return {
            str(context): _difference(self._before.get(context, _UNUSED), now.get(context, _UNUSED))
            for context in dict.fromkeys([*contexts, *now])
        }


def _difference(before: StorageStatistics, now: StorageStatistics) -> PoolCounters:
    return PoolCounters(
        requests=now.requests - before.requests,
        requests_from_pool=now.requests_from_pool - before.requests_from_pool,
        system_allocations=now.system_allocations - before.system_allocations,
        blocks_in_use=now.blocks_in_use,
        bytes_in_use=now.bytes_in_use,
        bytes_reserved=now.bytes_reserved,
        peak_bytes=now.peak_bytes,
    )
