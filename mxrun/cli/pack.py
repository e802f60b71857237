"""`mxrun pack`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mxrun.base.limits import MAX_SEED
from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.cli.arguments import AllowPlugins, Json, Overrides

if TYPE_CHECKING:
    from mxrun.commands import pack as command


class PackFormName(str, Enum):
    """Form of the files."""

    REC = "rec"
    TAR = "tar"


class PackEncodingName(str, Enum):
    """Encoding of packed images."""

    KEEP = "keep"
    JPEG = "jpeg"
    PNG = "png"
    RAW = "raw"


class OnBadRecord(str, Enum):
    """Treatment of a record that cannot be read."""

    ERROR = "error"
    SKIP = "skip"


def _size(text: str) -> int:
    size = parse_size(text)
    if size is None or size < 1:
        raise typer.BadParameter(f"{text!r} is not a size: {SIZE_FORM}")
    return size


Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder with a folder of images for each class, a list of images (.lst, .csv), "
        "or a config, whose data section is packed.",
    ),
]
Out = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="The file: NAME.rec (RecordIO) or NAME.tar."),
]
PackSplit = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The folder's part, such as val, or the config's section: train or eval.",
        show_default="train",
    ),
]
Form = Annotated[
    PackFormName | None,
    typer.Option("--format", help="Format of the files.", show_default="the ending of OUT"),
]
Encoding = Annotated[
    PackEncodingName | None,
    typer.Option(
        help="keep: image files as they are; raw: arrays, which need no decoding, and which "
        "only mxrun reads.",
        show_default="keep; jpeg with --resize or --quality; png for arrays",
    ),
]
Resize = Annotated[
    int | None,
    typer.Option(
        min=1, max=1 << 15, metavar="N", help="Length of the shorter side of every image."
    ),
]
Quality = Annotated[
    int | None,
    typer.Option(min=1, max=100, metavar="N", help="Quality of JPEG.", show_default="95"),
]
Channels = Annotated[
    int | None,
    typer.Option(
        metavar="1|3",
        help="Grey or colour, of the images of a folder or a list that are not kept.",
        show_default="3",
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, metavar="N", help="Number of files, NAME-00000 and so on."),
]
ShardSize = Annotated[
    int | None,
    typer.Option(
        parser=_size, metavar="SIZE", help="Size of each file at most, such as '256 MiB'."
    ),
]
Shuffle = Annotated[
    bool, typer.Option("--shuffle", help="Mix the records, in an order drawn by --seed.")
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, metavar="N", help="Seed of --shuffle.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="Threads that read and encode; the files do not depend on them.",
        show_default="the cores",
    ),
]
PackOnBadRecord = Annotated[
    OnBadRecord,
    typer.Option(help="skip leaves out images that cannot be read, and lists them."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def pack(
    source: Source,
    out: Out,
    overrides: Overrides = None,
    split: PackSplit = None,
    form: Form = None,
    encoding: Encoding = None,
    resize: Resize = None,
    quality: Quality = None,
    channels: Channels = None,
    shards: Shards = None,
    shard_size: ShardSize = None,
    shuffle: Shuffle = False,
    seed: Seed = 0,
    workers: Workers = None,
    on_bad_record: PackOnBadRecord = OnBadRecord.ERROR,
    overwrite: Overwrite = False,
    allow_plugins: AllowPlugins = False,
    json: Json = False,
) -> None:
    """Pack images into few large files, which are faster to read than many small ones.

    RecordIO files are those of MXNet, with an index (.idx), a list (.lst) and the names of the
    classes (.classes); tar files have the layout of WebDataset. Images are decoded to check them.
    At the end everything is read back and compared. A pack that was stopped or killed continues
    with the same command, and its files have the same bytes. Exit code 75 after Ctrl-C.

    \b
    Examples:
      mxrun pack photos photos.rec
      mxrun pack photos val.rec --split val --resize 256 --quality 90
      mxrun pack labels.csv train.tar --shard-size '256 MiB' --shuffle
      mxrun pack net.yaml train.rec --shards 16 data.train.path=photos
      mxrun pack digits_lenet digits.rec --encoding raw
    """
    from mxrun.commands import pack as command
    from mxrun.report.status import status

    if channels not in (None, 1, 3):
        raise typer.BadParameter(f"--channels {channels} is neither 1 (grey) nor 3 (colour)")
    options = command.PackOptions(
        command.form_of(out, None if form is None else form.value),
        None if encoding is None else encoding.value,
        resize,
        quality,
        shards,
        shard_size,
        shuffle,
        seed,
    )
    with status(f"reading {source}"):
        job = command.prepare(
            source,
            out,
            options,
            split,
            channels,
            overrides or (),
            workers,
            on_bad_record is OnBadRecord.SKIP,
            overwrite,
            allow_plugins,
        )
    _run(job, json)


def _run(job: command.PackJob, json: bool) -> None:
    """Pack, and write the report."""
    from mxrun.report.infer import progress_callback
    from mxrun.report.notes import write_notes
    from mxrun.report.pack import pack_parts
    from mxrun.report.result import write_json, write_tables

    write_notes(job.notes)
    with progress_callback(job.total, True) as advance:
        report = job.run(advance).to_json()
    if json:
        write_json(report)
    else:
        write_tables(pack_parts(report))
