"""Standard streams that cannot be written, lack characters, or are reserved for results."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# Errors of write(2) on a stream: no space, over a quota or size limit, device failure, closed.
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}

# Standard output, once it is reserved.
_RESERVED: list[TextIO] = []


def reserve(stream: TextIO) -> None:
    """Reserve standard output for results: all else that is printed goes to standard error."""
    if not _RESERVED:
        _RESERVED.append(stream)
        sys.stdout = sys.stderr


def results() -> TextIO:
    """Return the stream for results: standard output."""
    return _RESERVED[0] if _RESERVED else sys.stdout


def escape_unencodable(stream: TextIO) -> None:
    r"""Make a stream escape characters that its encoding lacks, as standard error does: `\xe4`."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def is_stream_error(error: OSError) -> bool:
    """Return whether an error is about an open stream, not about a named file."""
    return error.filename is None and error.errno in _WRITE_ERRORS


@contextmanager
def optional_stderr() -> Iterator[None]:
    """Context manager that drops standard error if it cannot be written.

    The terminal or the reader of a pipe may be closed long before a run ends; that must not end the
    run.
    """
    try:
        yield
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Redirect a stream to the null device.

    Otherwise, data left in its buffer by a failed write would fail again when the interpreter
    exits.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
