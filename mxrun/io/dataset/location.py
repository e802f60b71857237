"""Places of records in files."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """File that holds a record, the record's number in it, and the byte at which it begins."""

    file: str
    number: int = 0
    offset: int = 0

    def __str__(self) -> str:
        if not self.offset:
            return self.file
        return f"{self.file}, record {self.number} at byte {self.offset}"
