"""Options of `mxrun pack`."""

from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.limits import MAX_SEED
from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import AllowPlugins, Json, Overrides


def _size(text: str) -> int:
    """Return a size in bytes. Raises ValueError for a text that is none, and for 0."""
    size = parse_size(text)
    if size is None or size < 1:
        raise ValueError(f"{text!r} is not a size: {SIZE_FORM}")
    return size


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """Options of a pack as the user gives them."""

    source: Annotated[
        str,
        Positional(
            "A folder with a folder of images for each class, a list of images (.lst, .csv), "
            "or a config, whose data section is packed.",
            "SOURCE",
        ),
    ]
    out: Annotated[Path, Positional("The file: NAME.rec (RecordIO) or NAME.tar.", "OUT")]
    overrides: Overrides = ()
    split: Annotated[
        str | None,
        Option(
            "The folder's part, such as val, or the config's section: train or eval.",
            "NAME",
            usual="train",
        ),
    ] = None
    form: Annotated[
        Literal["rec", "tar"] | None,
        Option("Format of the files.", usual="the ending of OUT", flags=("--format",)),
    ] = None
    encoding: Annotated[
        Literal["keep", "jpeg", "png", "raw"] | None,
        Option(
            "keep: image files as they are; raw: arrays, which need no decoding, and which "
            "only mxrun reads.",
            usual="keep; jpeg with --resize or --quality; png for arrays",
        ),
    ] = None
    resize: Annotated[
        int | None,
        Option("Length of the shorter side of every image.", "N", minimum=1, maximum=1 << 15),
    ] = None
    quality: Annotated[
        int | None, Option("Quality of JPEG.", "N", usual="95", minimum=1, maximum=100)
    ] = None
    channels: Annotated[
        int | None,
        Option(
            "Grey or colour, of the images of a folder or a list that are not kept.",
            "1|3",
            usual="3",
        ),
    ] = None
    shards: Annotated[
        int | None,
        Option("Number of files, NAME-00000 and so on.", "N", minimum=1, maximum=100_000),
    ] = None
    shard_size: Annotated[
        int | None, Option("Size of each file at most, such as '256 MiB'.", "SIZE", parse=_size)
    ] = None
    shuffle: Annotated[bool, Option("Mix the records, in an order drawn by --seed.")] = False
    seed: Annotated[int, Option("Seed of --shuffle.", "N", minimum=0, maximum=MAX_SEED)] = 0
    workers: Annotated[
        int | None,
        Option(
            "Threads that read and encode; the files do not depend on them.",
            "N",
            usual="the cores",
            minimum=1,
            maximum=1024,
        ),
    ] = None
    on_bad_record: Annotated[
        Literal["error", "skip"],
        Option("skip leaves out images that cannot be read, and lists them."),
    ] = "error"
    overwrite: Annotated[bool, Option("Replace existing files.")] = False
    allow_plugins: AllowPlugins = False
    json: Json = False
