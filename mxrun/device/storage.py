"""The process's devices and storage pools, by context."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mxrun.base.context import Context
from mxrun.base.flags import debug
from mxrun.base.once import once
from mxrun.device.interface import Device
from mxrun.device.registry import device_kind, open_device
from mxrun.operator.launch import Memory
from mxrun.runtime.leak_check import report_leaks_at_exit
from mxrun.runtime.storage import StoragePool, StoragePools


@once
def device_of(context: Context) -> Device:
    """Return the device of a context, opened for all its cores.

    Raises UserError for an unknown kind of device.
    """
    kind = device_kind(context.kind)
    return open_device(kind.describe(context.index, kind.cores()), context.kind)


def new_pool(context: Context, cap: int | None = None) -> StoragePool:
    """Return a new pool of the memory of a context's device.

    In debug mode freed blocks are poisoned where the memory is the host's.
    """
    device = device_of(context)
    is_poisoned = debug() and device.has_host_memory
    fill = _poison(device) if is_poisoned else None
    return StoragePool(context, device.allocate, cap, fill, device.description.alignment)


def _poison(device: Device) -> Callable[[Memory, int, int, int], None]:
    """Return a device's `fill`, which does nothing when the process ends: modules are gone then."""
    fill, is_ending = device.fill, sys.is_finalizing

    def poison(memory: Memory, begin: int, end: int, byte: int) -> None:
        if not is_ending():
            fill(memory, begin, end, byte)

    return poison


@once
def storage_pools() -> StoragePools:
    """Return the process's pools; in debug mode leaks are reported when the process ends."""
    pools = StoragePools(new_pool)
    if debug():
        report_leaks_at_exit(pools)
    return pools
