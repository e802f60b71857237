"""Standard streams that cannot be written."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# What write(2) says of a stream: no space, beyond a quota or size, a failing device, closed.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}


def escape_unencodable(stream: TextIO) -> None:
    """Have a stream show what its encoding lacks as escapes, as standard error does: `\\xe4`."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def is_stream_error(error: OSError) -> bool:
    """Whether an error is about a stream that is open, and not about a file's name."""
    return error.filename is None and error.errno in _WRITE_ERRORS


@contextmanager
def dispensable() -> Iterator[None]:
    """Standard error is given up where it cannot be written: what goes there is worth no failure.

    The terminal may be closed, or the reader of a pipe gone, long before a run is over.
    """
    try:
        yield
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Give a stream to the null device.

    What a failed write leaves in a buffer would fail again when the interpreter exits.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
