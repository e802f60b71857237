"""Options of `mxrun init`."""

from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.flags import runs_folder
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import Json, RunsFolder


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """Data to look at, and the config to write."""

    source: Annotated[
        str,
        Positional(
            "A folder of images, a table (.csv, .tsv), an .npz archive, a text, lines of a "
            "label, a tab and a text, a folder with the files of MNIST or CIFAR, or digits, the "
            "bundled ones.",
            "PATH",
        ),
    ]
    settings: Annotated[
        tuple[str, ...],
        Positional(
            "How a table is read, by the keys of the data set csv, or of series, such as "
            "header=true, delimiter=';' or season=24.",
            "KEY=VALUE",
        ),
    ] = ()
    kind: Annotated[
        Literal["table", "series", "text", "images"] | None,
        Option("What the data are.", "KIND", usual="as they look", flags=("--as",)),
    ] = None
    task: Annotated[
        Literal["classification", "regression"] | None,
        Option(
            "Whether a table's label is a class or a number.", "TASK", usual="as its values look"
        ),
    ] = None
    to: Annotated[Path | None, Option("Config to write.", "FILE", usual="NAME.yaml")] = None
    name: Annotated[str | None, Option("Name of the run.", "NAME", usual="that of the data")] = None
    label: Annotated[
        str | None,
        Option(
            "Label column of a table, or column of a series to predict, by name or number from 0, "
            "or several: a,b; of an archive, its array.",
            "COLUMN",
            usual="guessed",
        ),
    ] = None
    start: Annotated[
        str | None,
        Option(
            "Bundled config with --weights, or a run, that a new head is trained on.",
            "CONFIG|RUN",
            flags=("--from",),
        ),
    ] = None
    weights: Annotated[
        Path | None,
        Option(
            "Weights of torchvision, timm or Keras for --from: .safetensors, .npz, .h5.", "FILE"
        ),
    ] = None
    runs: RunsFolder = field(default_factory=runs_folder)
    overwrite: Annotated[bool, Option("Replace the config.")] = False
    json: Json = False
