"""Options of the commands of `mxrun datasets`."""

from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.limits import MAX_SEED
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import AllowPlugins, Config, Json, Overrides

_Section = Literal["train", "eval"]
_Workers = Annotated[
    int | None,
    Option("Threads that read records.", "N", usual="the cores", minimum=1, maximum=1024),
]


@dataclass(frozen=True, kw_only=True)
class ListDatasetsOptions:
    """Options of the list of data sets."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class DescribeDatasetOptions:
    """Options of the description of a data set."""

    name: Annotated[str, Positional("Name of a data set or format, such as mnist.", "NAME")]
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class PeekOptions:
    """Options of a look at some records."""

    config: Config
    overrides: Overrides = ()
    split: Annotated[_Section, Option("The section to read.")] = "train"
    count: Annotated[int, Option("Number of records.", "N", minimum=1, maximum=1024)] = 16
    epoch: Annotated[int, Option("The epoch, from 1.", "N", minimum=1, maximum=1 << 30)] = 1
    seed: Annotated[
        int | None,
        Option(
            "Seed of the order and of the random transforms.",
            "N",
            usual="config",
            minimum=0,
            maximum=MAX_SEED,
        ),
    ] = None
    raw: Annotated[bool, Option("Records as the files hold them, without transforms.")] = False
    to: Annotated[Path | None, Option("Image sheet to write.", "FILE.png", usual="NAME_SPLIT")] = (
        None
    )
    allow_plugins: AllowPlugins = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class StatisticsOptions:
    """Options of the statistics of records."""

    config: Config
    overrides: Overrides = ()
    split: Annotated[_Section | None, Option("The section to measure.", usual="all sections")] = (
        None
    )
    workers: _Workers = None
    allow_plugins: AllowPlugins = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class CheckDataOptions:
    """Options of a check of all records."""

    config: Config
    overrides: Overrides = ()
    workers: _Workers = None
    allow_plugins: AllowPlugins = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """Options of a fetch of a published data set."""

    name: Annotated[
        str, Positional("mnist, fashion_mnist, cifar10, cifar100 or tiny_shakespeare.", "NAME")
    ]
    to: Annotated[Path | None, Option("Folder for the files.", "FOLDER", usual="NAME")] = None
    origin: Annotated[
        str,
        Option(
            "Another address, or a folder, that has the same files.",
            "URL|FOLDER",
            usual="the published addresses",
            flags=("--from",),
        ),
    ] = ""
    overwrite: Annotated[bool, Option("Replace other files of the same names.")] = False
    timeout: Annotated[
        float,
        Option(
            "Time without an answer after which the server is asked again.",
            "SECONDS",
            minimum=0.1,
            maximum=3600,
        ),
    ] = 30.0
    json: Json = False
