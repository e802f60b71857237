"""Writers of one shard of a pack: a RecordIO file with its index and list, or a tar file."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import encode_record
from mxrun.io.formats.tar_shards import TarWriter
from mxrun.io.pack.encode import EncodedRecord
from mxrun.io.pack.growing_file import GrowingFile
from mxrun.io.pack.options import PackForm


class ShardWriter(ABC):
    """Writer of a shard's files, whose names are `names`, in a folder.

    sizes: the bytes of each file that stay, by name; what follows them is removed.
    """

    def __init__(self, folder: Path, names: Sequence[str], sizes: Mapping[str, int]) -> None:
        self.names = tuple(names)
        self._files = [GrowingFile(folder / name, sizes.get(name, 0)) for name in names]

    @abstractmethod
    def size_with(self, record: EncodedRecord, number: int) -> int:
        """Return the size that the file of records would have with one more record."""

    @abstractmethod
    def write(self, record: EncodedRecord, number: int, source: str) -> int:
        """Append a record; returns the CRC-32 of what a reader gets of it.

        number: of the record in the pack. source: where it came from.
        """

    def end(self) -> None:
        """Write what follows the last record."""
        return

    @property
    def size(self) -> int:
        """Bytes of the file of records."""
        return self._files[0].size

    def sync(self) -> dict[str, int]:
        """Make the files durable, and return their sizes by name."""
        for file in self._files:
            file.sync()
        return {name: file.size for name, file in zip(self.names, self._files, strict=True)}

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class RecordShardWriter(ShardWriter):
    """Writer of a RecordIO file of image records, its index file and MXNet's list of images."""

    def size_with(self, record: EncodedRecord, number: int) -> int:
        """Return the size with one more record."""
        return self.size + len(encode_record(_payload(record, number)))

    def write(self, record: EncodedRecord, number: int, source: str) -> int:
        """Append a record, a line of the index and one of the list."""
        records, index, listed = self._files
        payload = _payload(record, number)
        start = records.size
        records.write(encode_record(payload))
        index.write(b"%d\t%d\n" % (number, start))
        labels = "".join(f"{_label_text(label)}\t" for label in record.label or (0.0,))
        line = f"{number}\t{labels}{_one_line(source)}\n"
        listed.write(line.encode("utf-8", "surrogateescape"))
        return zlib.crc32(payload)


class TarShardWriter(ShardWriter):
    """Writer of a tar file with an image and a label, `cls`, for each record."""

    def __init__(self, folder: Path, names: Sequence[str], sizes: Mapping[str, int]) -> None:
        super().__init__(folder, names, sizes)
        self._tar = TarWriter(cast(Any, self._files[0]))

    def size_with(self, record: EncodedRecord, number: int) -> int:
        """Return the size with one more record: a header of 512 bytes for each member."""
        contents = _members(record).values()
        return self.size + sum(512 + len(content) + -len(content) % 512 for content in contents)

    def write(self, record: EncodedRecord, number: int, source: str) -> int:
        """Append the members of a record."""
        contents = _members(record)
        self._tar.write(f"{number:09}", contents)
        crc = 0
        for content in contents.values():
            crc = zlib.crc32(content, crc)
        return crc

    def end(self) -> None:
        """Write the end mark."""
        self._tar.close()


WRITERS: Mapping[PackForm, type[ShardWriter]] = {"rec": RecordShardWriter, "tar": TarShardWriter}


def _payload(record: EncodedRecord, number: int) -> bytes:
    label = record.label
    one = label[0] if len(label) == 1 else 0.0 if not label else np.array(label, np.float32)
    return pack_image_record(one, number, record.content)


def _members(record: EncodedRecord) -> dict[str, bytes]:
    """Return the members of a record by extension: the image, and the label if it has one."""
    label = record.class_name or " ".join(f"{number:.9g}" for number in record.label)
    members = {record.extension: record.content}
    return members | ({"cls": label.encode()} if label else {})


def _label_text(label: float) -> str:
    """Return a number as MXNet's lists write it, with more digits where these lose some."""
    text = f"{label:.6f}"
    return text if float(text) == label else repr(label)


def _one_line(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
