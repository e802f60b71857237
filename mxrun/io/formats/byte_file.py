"""Regular files whose bytes are read at offsets, by several threads at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import fail, unreadable_error

# Files of one data set that stay open; of more, each is opened for each read.
MAX_OPEN_FILES = 256


class ByteFile:
    """Regular file that is read at byte offsets, without a position of its own.

    The file stays open, or, without `stays_open`, is opened for each read, as for hundreds of
    shards, which a process may not hold open together. `size` is its size in bytes when it was
    opened. Raises UserError if it cannot be read or is no regular file.
    """

    def __init__(self, path: Path, stays_open: bool = True) -> None:
        self.path = path
        self._descriptor, self.size = self._open()
        if not stays_open:
            self.close()

    @property
    def descriptor(self) -> int:
        """Descriptor of the open file; negative for a file that is opened for each read."""
        return self._descriptor

    def read(self, offset: int, count: int) -> bytes:
        """Return the `count` bytes from `offset`; raises UserError if the file has fewer."""
        if offset < 0 or count < 0 or offset + count > self.size:
            expected = f"{count:,} bytes from here"
            got = f"{max(0, self.size - offset):,} bytes"
            fail(self.path, offset, "the file ends early", expected, got)
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()[0]
        try:
            content = os.pread(descriptor, count, offset)
            while len(content) < count:
                more = os.pread(descriptor, count - len(content), offset + len(content))
                if not more:
                    problem = "the file became shorter after it was opened"
                    fail(self.path, offset + len(content), problem, f"{self.size:,} bytes")
                content += more
        except OSError as error:
            raise unreadable_error(self.path, error) from error
        finally:
            if descriptor != self._descriptor:
                os.close(descriptor)
        return content

    def close(self) -> None:
        """Close the file; a later read opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> tuple[int, int]:
        """Return a descriptor and the file's size."""
        try:
            # Opening a pipe would wait for its writer.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise unreadable_error(self.path, error) from error
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            problem = f"{self.path}: not a regular file"
            raise UserError(Diagnostic(problem, None, "a file that can be read at any offset"))
        return descriptor, found.st_size

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)
