"""File that grows: written without a buffer, so that what it holds is known at any time."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class GrowingFile:
    """File open for appending after its first `size` bytes; what follows them is removed."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Raises OSError if it cannot be opened, or has fewer bytes."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)
        self.path, self.size = path, size
        try:
            if os.fstat(self._descriptor).st_size < size:
                raise OSError(f"{path}: the file became shorter")
            os.ftruncate(self._descriptor, size)
            os.lseek(self._descriptor, size, os.SEEK_SET)
        except OSError:
            os.close(self._descriptor)
            raise

    def write(self, content: bytes | memoryview) -> int:
        """Append bytes, all of them."""
        view = memoryview(content)
        while view:
            count = os.write(self._descriptor, view)
            self.size += count
            view = view[count:]
        return len(content)

    def tell(self) -> int:
        """Return the number of bytes."""
        return self.size

    def sync(self) -> None:
        """Make the content durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
