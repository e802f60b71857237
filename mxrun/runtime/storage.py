"""The arena: one mapping that ends at a page no one may touch."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError
from mxrun.base.tensor import Shape

_PROT_NONE = 0


def machine_bytes() -> int:
    """Physical memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes() -> int:
    """The largest resident size this process has had.

    Linux's VmHWM: what getrusage reports instead starts at the size of the parent process.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


class Arena:
    """`nbytes` (a multiple of 64) of zeroed memory; the byte after the last one faults.

    Arrays taken from it keep the mapping alive.
    """

    def __init__(self, nbytes: int) -> None:
        page = mmap.PAGESIZE
        body = -(-nbytes // page) * page
        self.nbytes = nbytes
        self._memory = mmap.mmap(-1, body + page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._start = body - nbytes
        mapping = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address = mapping + self._start
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if libc.mprotect(mapping + body, page, _PROT_NONE):
            raise InternalError(f"mprotect failed: error {ctypes.get_errno()}")

    def array(self, offset: int, shape: Shape, dtype: str) -> npt.NDArray[Any]:
        """A writable view of `shape` elements of `dtype` at `offset`; copies nothing."""
        count = math.prod(shape)
        flat = np.frombuffer(self._memory, numpy_dtype(dtype), count, self._start + offset)
        return flat.reshape(shape)

    def bytes_view(self) -> npt.NDArray[np.uint8]:
        """The whole arena as bytes."""
        return np.frombuffer(self._memory, np.uint8, self.nbytes, self._start)
