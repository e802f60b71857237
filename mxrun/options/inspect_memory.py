"""Options of `mxrun inspect-memory`."""

from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.limits import MAX_GENERATED
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import (
    AllowPlugins,
    BatchOrMax,
    Json,
    Overrides,
    Threads,
    parse_bytes,
)


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Options of an inspection of memory: a network to plan, or a file of blocks to place."""

    config: Annotated[
        str | None,
        Positional("A YAML file, the name of a bundled config, or a run's folder.", "CONFIG"),
    ] = None
    overrides: Overrides = ()
    phase: Annotated[
        Literal["train", "infer", "generate"] | None,
        Option(
            "Plan training with evaluation, inference, or the generation of text.", usual="train"
        ),
    ] = None
    batch: BatchOrMax = None
    threads: Threads = None
    ranks: Annotated[
        int | None,
        Option(
            "Plan one of N processes that train together: the first, which needs most.",
            "N",
            minimum=1,
            maximum=1024,
        ),
    ] = None
    length: Annotated[
        int | None,
        Option(
            "With --phase generate: tokens of a text, its prompt included.",
            "N",
            usual="the context",
            minimum=1,
            maximum=MAX_GENERATED,
        ),
    ] = None
    device_properties: Annotated[
        str | None,
        Option(
            "Plan for a card that is not here: a100, b200, h100, or a JSON file of properties, "
            "which `mxrun info --json` writes.",
            "CARD",
        ),
    ] = None
    allow_plugins: AllowPlugins = False
    what_if: Annotated[
        bool, Option("Plan other settings too: bytes saved and time added by each.")
    ] = False
    diff: Annotated[str | None, Option("Compare with another config.", "CONFIG")] = None
    svg: Annotated[Path | None, Option("Draw the arena over the steps.", "FILE")] = None
    html: Annotated[
        Path | None, Option("The drawing as a page that describes each block.", "FILE")
    ] = None
    csv: Annotated[
        Path | None, Option("The blocks as an allocation problem in MiniMalloc's format.", "FILE")
    ] = None
    fail_above: Annotated[
        int | None,
        Option(
            "Exit with 1 if CONFIG's arena is larger than SIZE, such as 2GiB.",
            "SIZE",
            parse=parse_bytes,
        ),
    ] = None
    problem: Annotated[
        Path | None,
        Option("Place the blocks of such a file instead of planning a network.", "FILE"),
    ] = None
    time_limit: Annotated[
        float | None,
        Option(
            "With --problem: search this long for the smallest arena. Ctrl-C ends the search "
            "with the best one found.",
            "SECONDS",
            minimum=0,
        ),
    ] = None
    json: Json = False

    @property
    def files(self) -> dict[str, Path | None]:
        """Files to write, by option."""
        return {"--svg": self.svg, "--html": self.html, "--csv": self.csv}
