"""Arrays between pages that nobody may access, so that a kernel that leaves one is stopped."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# A tensor's alignment on a card, so that an array ends up to so many bytes before a page.
_ALIGNMENT = 256
_NO_ACCESS = 0


def guarded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy in pages of its own, at their end as far as the alignment allows."""
    page = mmap.PAGESIZE
    size = -(-max(values.nbytes, 1) // page) * page
    pages = mmap.mmap(-1, size + 2 * page)
    whole = np.frombuffer(pages, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for start in (0, page + size):
        address = ctypes.c_void_p(whole.ctypes.data + start)
        assert protect(address, ctypes.c_size_t(page), _NO_ACCESS) == 0
    first = (page + size - values.nbytes) // _ALIGNMENT * _ALIGNMENT
    copy = whole[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy
