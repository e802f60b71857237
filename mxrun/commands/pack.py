"""Implementation of `pack`: images of a data set in few large files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.registry import dataset_of_suffix
from mxrun.io.files import user_path
from mxrun.io.pack.encode import default_encoding
from mxrun.io.pack.options import PackEncoding, PackForm, PackSettings, PackTarget
from mxrun.io.pack.pack import PackRequest, PackResult, pack
from mxrun.options.pack import PackOptions
from mxrun.survey.pack_source import open_source
from mxrun.train.interruption import Interruption

_SUFFIXES: dict[str, PackForm] = {".rec": "rec", ".tar": "tar"}


@dataclass(frozen=True)
class PackJob:
    """Pack that is ready to run."""

    request: PackRequest

    @property
    def total(self) -> int:
        """Number of records of the source."""
        return len(self.request.dataset)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the source, such as on files that are left out."""
        return self.request.dataset.notes

    def run(self, advance: Callable[[int], None]) -> PackReport:
        """Pack the records and check the files; a signal stops it between records.

        advance: receives the number of records that are packed, and then read back.
        """
        with Interruption() as interruption:
            result = pack(self.request, lambda: interruption.requested, advance)
        return PackReport(self.request.target, result)


@dataclass(frozen=True)
class PackReport:
    """Result of a pack, with the lines of a config that read it."""

    target: PackTarget
    result: PackResult

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        result, options = self.result, self.target.options
        skipped = [each.to_json() for each in result.skipped]
        dataset = dataset_of_suffix(f".{options.form}")
        return {
            "folder": str(result.folder),
            "files": [asdict(file) for file in result.files],
            "records": result.records,
            "bytes": sum(file.bytes for file in result.files),
            "skipped": skipped,
            "resumed": result.resumed,
            "options": asdict(options),
            "sha256": result.digest,
            "config": f"{{dataset: {dataset}, path: {self._path()}}}",
        }

    def _path(self) -> str:
        """Return the path of the files, or a pattern, as YAML."""
        target = self.target
        suffix = f".{target.options.form}"
        name = f"{target.out.stem}-*{suffix}" if target.options.is_sharded else target.out.name
        return json.dumps(str(target.folder / name))


def prepare(options: PackOptions, form: PackForm) -> PackJob:
    """Open the source of a pack and check its options.

    form: that of the files. Raises UserError for errors in any of them.
    """
    packing = PackSettings(
        form=form,
        encoding=options.encoding,
        resize=options.resize,
        quality=options.quality,
        shards=options.shards,
        shard_bytes=options.shard_size,
        shuffle=options.shuffle,
        seed=options.seed,
    )
    suffix = f".{form}"
    name = user_path(str(options.out))
    target_name = name if name.suffix == suffix else name.with_name(f"{name.name}{suffix}")
    found = open_source(options)
    encoding = options.encoding or default_encoding(found.dataset, packing)
    _check(encoding, packing)
    return PackJob(
        PackRequest(
            dataset=found.dataset,
            target=PackTarget(target_name, packing.complete(encoding)),
            root=found.root,
            workers=options.workers or len(os.sched_getaffinity(0)),
            skip_bad=options.on_bad_record == "skip",
            overwrite=options.overwrite,
        )
    )


def form_of(out: Path, given: PackForm | None) -> PackForm:
    """Return the form of the files, which the option says, or the ending of the name.

    Raises UserError if neither says it, or each says another one.
    """
    named = _SUFFIXES.get(out.suffix)
    if given is None and named is None:
        expected = "a name that ends in .rec (RecordIO) or .tar, or --format rec or tar"
        raise UserError(
            Diagnostic("the format of the files is not given", None, expected, str(out))
        )
    if given is not None and named is not None and given != named:
        raise UserError(f"--format {given} does not fit the name {out}")
    return given or named or "rec"


def _check(encoding: PackEncoding, options: PackSettings) -> None:
    """Raise UserError for options that contradict each other."""
    if encoding == "keep" and options.resize is not None:
        problem = "--encoding keep stores image files as they are, and --resize changes them"
        raise UserError(Diagnostic(problem, None, "--encoding jpeg, png or raw"))
    if encoding != "jpeg" and options.quality is not None:
        raise UserError(f"--quality is for JPEG: leave it out with --encoding {encoding}")
    if options.shards is not None and options.shard_bytes is not None:
        raise UserError("--shards and --shard-size both divide the records: give one of them")
