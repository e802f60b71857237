"""Options of `mxrun infer` for text: prompts, the length, and how tokens are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.limits import MAX_GENERATED, MAX_SEED
from mxrun.cli.arguments import PrecisionName

_GROUP = "Text"

Prompt = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=_GROUP,
        help="Generate text that continues this one, instead of running on inputs.",
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_GROUP,
        help="Continue each text of a file: one a line or, in .jsonl and .json, strings or objects "
        "with the key prompt; - reads standard input.",
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_GENERATED,
        metavar="N",
        rich_help_panel=_GROUP,
        help="Number of tokens to generate.",
        show_default="128, or what the network has positions for",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="T",
        rich_help_panel=_GROUP,
        help="Divides the logits: below 1 for likelier tokens; 0 always takes the likeliest.",
        show_default="1",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="K",
        rich_help_panel=_GROUP,
        help="Draw from the K likeliest tokens.",
        show_default="all",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        rich_help_panel=_GROUP,
        help="Draw from the fewest tokens that together have the probability P, above 0 to 1.",
        show_default="1",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_SEED,
        metavar="S",
        rich_help_panel=_GROUP,
        help="Seed of the draws.",
        show_default="the config's",
    ),
]


@dataclass(frozen=True)
class PromptOptions:
    """Values of the options for text; None for those that are absent."""

    prompt: str | None
    prompts: Path | None
    length: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None

    @property
    def is_requested(self) -> bool:
        """Whether text shall be generated. Raises UserError for the other options without it."""
        if self.prompt is not None or self.prompts is not None:
            return True
        given = _given({"length": self.length, **self._sampling, "seed": self.seed})
        if given:
            raise UserError(
                Diagnostic(
                    f"{', '.join(given)} without a text to continue",
                    hint="add --prompt TEXT, or --prompts FILE",
                )
            )
        return False

    @property
    def _sampling(self) -> Mapping[str, object]:
        return {"temperature": self.temperature, "top-k": self.top_k, "top-p": self.top_p}

    def check(self, inputs: Sequence[str], others: Mapping[str, object], batch: str | None) -> None:
        """Raise UserError for options that cannot be combined.

        others: values, by option, of those that go with inputs. batch: the value of `--batch`.
        """
        if self.prompt is not None and self.prompts is not None:
            raise UserError("--prompt and --prompts both say what to continue: leave out one")
        given = [*map(str, inputs[:1]), *_given(others)]
        if given:
            option = "--prompts" if self.prompt is None else "--prompt"
            raise UserError(
                Diagnostic(
                    f"{', '.join(given)} cannot be combined with {option}",
                    hint="generated text needs no inputs and has no classes; --json prints tokens",
                )
            )
        if batch == "max":
            raise UserError(Diagnostic("--batch max has no meaning for text", hint="--batch N"))
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(Diagnostic("--top-p", None, "above 0, at most 1", f"{self.top_p:g}"))
        if self.temperature is not None and not math.isfinite(self.temperature):
            problem, expected = "--temperature", "a finite number, 0 or more"
            raise UserError(Diagnostic(problem, None, expected, f"{self.temperature:g}"))
        greedy = self.temperature == 0
        if greedy and (useless := _given({"top-k": self.top_k, "top-p": self.top_p})):
            problem = f"{', '.join(useless)} with --temperature 0, which draws nothing"
            raise UserError(Diagnostic(problem, hint="leave out one of them"))


def _given(options: Mapping[str, object]) -> list[str]:
    """Return the options that are not absent."""
    return [f"--{name}" for name, value in options.items() if value not in (None, (), [])]


@dataclass(frozen=True)
class ModelOptions:
    """Values of the options that say which network continues texts, and how it runs."""

    run: Path
    checkpoint: str | None
    batch: int | None
    threads: int | None
    precision: PrecisionName | None
    allow_changes: bool
    allow_plugins: bool


def batch_number(batch: str | None) -> int | None:
    """Return the value of `--batch` as a number; None if the option is absent."""
    return None if batch is None else int(batch)


def generate(model: ModelOptions, text: PromptOptions, runs: Path | None, json: bool) -> None:
    """Continue the prompts and write the texts: a single one while it is generated."""
    from mxrun.base.flags import runs_folder
    from mxrun.commands import generate as command
    from mxrun.report.generation import generation_text, write_streamed, write_texts
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json
    from mxrun.report.status import status

    read = command.read_prompts(text.prompts) if text.prompts is not None else ()
    prompts = [text.prompt] if text.prompt is not None else [each.text for each in read]
    temperature = 1.0 if text.temperature is None else text.temperature
    request = command.GenerateRequest(
        tuple(prompts),
        text.length,
        command.TokenSampling(temperature, text.top_k, text.top_p),
        text.seed,
        model.batch,
        model.threads,
        model.precision.value if model.precision else None,
        tuple(each.place for each in read),
    )
    with status(f"loading {model.run}"):
        generation = command.generate(
            model.run,
            request,
            runs_folder(runs),
            model.checkpoint,
            model.allow_changes,
            model.allow_plugins,
            write_note,
        )
    write_notes(generation.notes)
    if len(prompts) == 1 and not json:
        write_streamed(prompts[0], (piece.text for piece in generation.run()))
    else:
        for _ in generation.run():
            pass
    if json:
        write_json(generation.to_json())
    elif len(prompts) > 1:
        write_texts([each.prompt + each.text for each in generation.texts])
    write_notes([generation_text(generation.summary())])
