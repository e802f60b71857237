"""Options of `mxrun engine`."""

from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import Json


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of a run of jobs."""

    jobs: Annotated[Path, Positional("A YAML file that lists jobs.", "DAG.yaml")]
    workers: Annotated[
        int | None,
        Option(
            "Number of jobs that may run at once.",
            "N",
            usual="the file's, or the cores",
            minimum=1,
            maximum=1024,
        ),
    ] = None
    engine: Annotated[
        Literal["threaded", "naive"],
        Option("naive runs one job after another, in the order of the file."),
    ] = "threaded"
    trace: Annotated[
        Path | None, Option("Write a trace of the jobs, for ui.perfetto.dev.", "FILE")
    ] = None
    verbose: Annotated[
        bool, Option("Show the output of every job, in full.", flags=("--verbose", "-v"))
    ] = False
    json: Json = False
