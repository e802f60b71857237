"""Options of `mxrun launch`."""

from dataclasses import field
from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.base.flags import runs_folder
from mxrun.options.declaration import Option
from mxrun.options.shared import Config, Json, Overrides, RunsFolder


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Options of a training run on several processes that is restarted when one of them is lost."""

    config: Config
    overrides: Overrides = ()
    ranks: Annotated[
        int, Option("Processes that train together.", "N", flags=("--ranks", "-n"), minimum=1)
    ]
    max_restarts: Annotated[
        int, Option("Restarts after which a lost process ends the run.", "N", minimum=0)
    ] = 0
    min_ranks: Annotated[
        int | None,
        Option(
            "Fewest processes to restart with, if it fails with as many as before.",
            "N",
            usual="as many as before",
            minimum=1,
        ),
    ] = None
    json: Json = False
    overwrite: Annotated[bool, Option("Replace an existing run of the same name.")] = False
    resume: Annotated[bool, Option("Continue the run of the same name, to the same bits.")] = False
    runs: RunsFolder = field(default_factory=runs_folder)
