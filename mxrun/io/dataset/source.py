"""Places of records in files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordSource:
    """File that holds a record, and the byte at which the record begins in it."""

    file: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.file}, byte {self.offset}" if self.offset else self.file
