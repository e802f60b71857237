"""Bytes that a storage pool has given out, without those that only garbage holds."""

from __future__ import annotations

import gc

from mxrun.base.context import cpu
from mxrun.device.storage import storage_pools


def bytes_in_use() -> int:
    """Bytes of the CPU's pool in use once cycles of objects are collected.

    Tests that ran before in the process leave such cycles, which are collected at any time.
    """
    gc.collect()
    return storage_pools().of(cpu()).statistics().bytes_in_use
