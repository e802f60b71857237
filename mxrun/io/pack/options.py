"""How images are packed, and the names of the files that hold them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mxrun.base.dataclass import dataclass

PackForm = Literal["rec", "tar"]
PackEncoding = Literal["keep", "jpeg", "png", "raw"]

# Files of a shard by the form of the pack; the first one holds the records.
SUFFIXES: dict[PackForm, tuple[str, ...]] = {"rec": (".rec", ".idx", ".lst"), "tar": (".tar",)}
# Files with the names of the classes; tar files have them in their labels.
CLASSES_SUFFIXES: dict[PackForm, tuple[str, ...]] = {"rec": (".classes",), "tar": ()}


@dataclass(frozen=True)
class PackSettings:
    """Settings of a pack, on which the bytes of its files depend.

    encoding: `keep` stores image files as they are; `raw` stores arrays, which only mxrun reads.
    resize: length of the shorter side, in pixels; None leaves sizes. quality: of JPEG, 1 to 100.
    shards: number of files of about equally many records; shard_bytes: size that a file does not
    exceed instead, unless one record does. shuffle, seed: order of the records. `complete` replaces
    None where it selects a default.
    """

    form: PackForm
    encoding: PackEncoding | None = None
    resize: int | None = None
    quality: int | None = None
    shards: int | None = None
    shard_bytes: int | None = None
    shuffle: bool = False
    seed: int = 0

    @property
    def jpeg_quality(self) -> int:
        """Quality of JPEG, by default 95."""
        return self.quality or 95

    @property
    def shard_count(self) -> int:
        """Number of files of about equally many records, by default 1."""
        return self.shards or 1

    @property
    def is_sharded(self) -> bool:
        """Whether the names of the files have numbers."""
        return self.shard_count > 1 or self.shard_bytes is not None

    def complete(self, encoding: PackEncoding) -> PackSettings:
        """Return the options with all defaults; `encoding`: that of the data set."""
        return replace(
            self,
            encoding=self.encoding or encoding,
            quality=self.jpeg_quality,
            shards=self.shard_count,
        )


@dataclass(frozen=True)
class PackTarget:
    """Names of a pack's files: those of `out`, such as `train.rec`, or `train-00000.rec`, ..."""

    out: Path
    options: PackSettings

    @property
    def folder(self) -> Path:
        """Folder of the finished files."""
        return self.out.parent

    @property
    def work(self) -> Path:
        """Folder that holds the files until all of them are complete."""
        return self.folder / f".{self.out.name}.packing"

    def stem(self, shard: int) -> str:
        """Return the name of a shard's files without suffix."""
        return f"{self.out.stem}-{shard:05}" if self.options.is_sharded else self.out.stem

    def names(self, shard: int) -> tuple[str, ...]:
        """Return the names of a shard's files; the first one holds the records."""
        return tuple(f"{self.stem(shard)}{suffix}" for suffix in SUFFIXES[self.options.form])

    def existing(self) -> list[Path]:
        """Return the files of an earlier pack of this name, of all its shards."""
        stem = re.escape(self.out.stem)
        form = self.options.form
        suffixes = "|".join(map(re.escape, (*SUFFIXES[form], *CLASSES_SUFFIXES[form])))
        name = re.compile(rf"{stem}(-\d{{5,}})?({suffixes})")
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if name.fullmatch(path.name)]
        records = SUFFIXES[form][0]
        return sorted(found, key=lambda path: (path.suffix != records, path.name))
