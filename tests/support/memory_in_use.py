"""Bytes that a storage pool has given out, without those that only garbage or the engine holds."""

from __future__ import annotations

import gc

from mxrun import nd
from mxrun.base.context import cpu
from mxrun.device.storage import storage_pools


def settle() -> None:
    """Let the process's engine and the garbage collector free what nothing needs.

    Tests that ran before in the process leave functions that are pending, and cycles of objects
    that are collected at any time.
    """
    # Pending functions hold arrays, which may be part of cycles.
    nd.waitall()
    gc.collect()
    # An array that is deleted while a worker has the engine's lock is freed later.
    nd.waitall()


def bytes_in_use() -> int:
    """Bytes of the CPU's pool in use once all is settled."""
    settle()
    return storage_pools().of(cpu()).statistics().bytes_in_use
