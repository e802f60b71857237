"""Options of `mxrun infer`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.flags import runs_folder
from mxrun.base.limits import MAX_GENERATED, MAX_SEED
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import (
    MAX,
    AllowChanges,
    AllowPlugins,
    BatchOrMax,
    CheckpointName,
    Json,
    Precision,
    RunFolder,
    RunsFolder,
    Threads,
)

# Of real options what they take, in words and as a function.
REAL_LIMITS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "top_p": ("above 0, at most 1", lambda x: 0 < x <= 1),
    "temperature": ("a finite number, 0 or more", lambda x: math.isfinite(x) and x >= 0),
}
OutputFormat = Literal["table", "jsonl", "csv", "npy", "svg"]


def _names(text: str) -> tuple[str, ...]:
    """Split `fc1,fc2` into names of layers."""
    return tuple(name.strip() for name in text.split(","))


@dataclass(frozen=True, kw_only=True)
class InferOptions:
    """Options of inference, and of the generation of text."""

    run: RunFolder
    inputs: Annotated[
        tuple[str, ...],
        Positional(
            "Images, .npy files, tables (csv), texts, or folders; - reads one of these from "
            "standard input; or one file of a data set, such as .npz. KEY=VALUE changes the data "
            "section: label=kind, header=true, data=[a,b].",
            "INPUT",
        ),
    ] = ()
    split: Annotated[
        str | None,
        Option(
            "Run on data of the config instead of files: train, eval, or a split of the data set.",
            "NAME",
        ),
    ] = None
    checkpoint: CheckpointName = None
    top: Annotated[
        int | None, Option("Show the N most likely classes.", "N", usual="1", minimum=1)
    ] = None
    classes: Annotated[
        Path | None, Option("File with the names of the classes, one a line.", "FILE")
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "Predict N steps after those of a series; beyond the horizon from its own predictions.",
            "N",
            usual="the horizon",
            minimum=1,
            maximum=MAX_GENERATED,
        ),
    ] = None
    prompt: Annotated[
        str | None,
        Option("Generate text that continues this one, instead of running on inputs.", "TEXT"),
    ] = None
    prompts: Annotated[
        Path | None,
        Option(
            "Continue each text of a file: one a line or, in .jsonl and .json, strings or objects "
            "with the key prompt; - reads standard input.",
            "FILE",
        ),
    ] = None
    length: Annotated[
        int | None,
        Option(
            "Number of tokens to generate.",
            "N",
            usual="128, or what the network has positions for",
            minimum=1,
            maximum=MAX_GENERATED,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Option(
            "Divides the logits: below 1 for likelier tokens; 0 always takes the likeliest.",
            "T",
            usual="1",
            minimum=0,
        ),
    ] = None
    top_k: Annotated[
        int | None, Option("Draw from the K likeliest tokens.", "K", usual="all", minimum=1)
    ] = None
    top_p: Annotated[
        float | None,
        Option(
            "Draw from the fewest tokens that together have the probability P, above 0 to 1.",
            "P",
            usual="1",
        ),
    ] = None
    seed: Annotated[
        int | None,
        Option("Seed of the draws.", "S", usual="the config's", minimum=0, maximum=MAX_SEED),
    ] = None
    outputs: Annotated[
        tuple[str, ...] | None,
        Option(
            "Layers whose outputs to return instead of the network's.", "NAME,...", parse=_names
        ),
    ] = None
    output: Annotated[
        OutputFormat | None,
        Option(
            "Format of the results; npy: all numbers as arrays, several outputs as npz; svg: a "
            "drawing of a forecast.",
            usual="from the ending of --to, else table",
        ),
    ] = None
    to: Annotated[Path | None, Option("Write to a file instead of standard output.", "FILE")] = None
    batch: BatchOrMax = None
    threads: Threads = None
    precision: Precision = None
    allow_changes: AllowChanges = False
    allow_plugins: AllowPlugins = False
    json: Json = False
    runs: RunsFolder = field(default_factory=runs_folder)

    @property
    def generates_text(self) -> bool:
        """Whether text shall be generated.

        Raises UserError for options of text without a text to continue, and for those that cannot
        be combined with it.
        """
        if self.prompt is not None or self.prompts is not None:
            self._check_text()
            return True
        sampling = {"temperature": self.temperature, "top-k": self.top_k, "top-p": self.top_p}
        given = _given({"length": self.length, **sampling, "seed": self.seed})
        if given:
            raise UserError(
                Diagnostic(
                    f"{', '.join(given)} without a text to continue",
                    hint="add --prompt TEXT, or --prompts FILE",
                )
            )
        return False

    def _check_text(self) -> None:
        """Raise UserError for options that text cannot be generated with."""
        if self.prompt is not None and self.prompts is not None:
            raise UserError("--prompt and --prompts both say what to continue: leave out one")
        of_records: dict[str, object] = {
            "split": self.split,
            "top": self.top,
            "classes": self.classes,
            "steps": self.steps,
        }
        of_records |= {"outputs": self.outputs, "output": self.output, "to": self.to}
        given = [*self.inputs[:1], *_given(of_records)]
        if given:
            option = "--prompts" if self.prompt is None else "--prompt"
            raise UserError(
                Diagnostic(
                    f"{', '.join(given)} cannot be combined with {option}",
                    hint="generated text needs no inputs and has no classes; --json prints tokens",
                )
            )
        if self.batch == MAX:
            raise UserError(Diagnostic("--batch max has no meaning for text", hint="--batch N"))
        for name, (expected, is_valid) in REAL_LIMITS.items():
            value = getattr(self, name)
            if value is not None and not is_valid(value):
                option = f"--{name.replace('_', '-')}"
                raise UserError(Diagnostic(option, None, expected, f"{value:g}"))
        greedy = self.temperature == 0
        if greedy and (useless := _given({"top-k": self.top_k, "top-p": self.top_p})):
            problem = f"{', '.join(useless)} with --temperature 0, which draws nothing"
            raise UserError(Diagnostic(problem, hint="leave out one of them"))


def _given(options: Mapping[str, object]) -> list[str]:
    """Return the options that are not absent."""
    return [f"--{name}" for name, value in options.items() if value is not None]
