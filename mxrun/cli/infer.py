"""`mxrun infer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mxrun.cli.arguments import (
    AllowChanges,
    AllowPlugins,
    BatchOrMax,
    CheckpointName,
    Json,
    Precision,
    RunFolder,
    RunsFolder,
    Threads,
    batch_size,
    divide_settings,
)
from mxrun.cli.generate import (
    Length,
    ModelOptions,
    Prompt,
    PromptOptions,
    Prompts,
    Seed,
    Temperature,
    TopK,
    TopP,
    batch_number,
    generate,
)
from mxrun.report.streams import results

if TYPE_CHECKING:
    from mxrun.commands import infer as command


class OutputFormat(str, Enum):
    """Output formats of results."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    NPY = "npy"


# Limit of the inputs that a message lists.
_MAX_NAMED_INPUTS = 3
_OF_SUFFIX = {
    ".jsonl": OutputFormat.JSONL,
    ".csv": OutputFormat.CSV,
    ".npy": OutputFormat.NPY,
    ".npz": OutputFormat.NPY,
}


Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT",
        help="Images, .npy files, tables (csv), texts, or folders; - reads one of these from "
        "standard input. KEY=VALUE changes the data section: label=kind, header=true, data=[a,b].",
    ),
]
SplitName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Run on data of the config instead of files: train, eval, or a split of the data set.",
    ),
]
Top = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Show the N most likely classes.", show_default="1"),
]
ClassesFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with the names of the classes, one a line."),
]
Outputs = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...", help="Layers whose outputs to return instead of the network's."
    ),
]
OutputForm = Annotated[
    OutputFormat | None,
    typer.Option(
        help="Format of the results; npy: all numbers as arrays, several outputs as npz.",
        show_default="from the ending of --to, else table",
    ),
]
To = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
]


def infer(
    run: RunFolder,
    inputs: Inputs = None,
    split: SplitName = None,
    checkpoint: CheckpointName = None,
    top: Top = None,
    classes: ClassesFile = None,
    prompt: Prompt = None,
    prompts: Prompts = None,
    length: Length = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    outputs: Outputs = None,
    output: OutputForm = None,
    to: To = None,
    batch: BatchOrMax = None,
    threads: Threads = None,
    precision: Precision = None,
    allow_changes: AllowChanges = False,
    allow_plugins: AllowPlugins = False,
    json: Json = False,
    runs: RunsFolder = None,
) -> None:
    """Run a trained network.

    Records from files are prepared as in evaluation: pixels are scaled as in training, then the
    config's evaluation transforms are applied. If training computed moving averages of the weights,
    these are used. Results are in the order of the inputs; the files of a folder are sorted.

    With --prompt or --prompts, a network that was trained on text continues them, one token after
    the other; the same seed gives the same text.

    \b
    Examples:
      mxrun infer runs/digits_lenet seven.png --top 3
      mxrun infer runs/digits_lenet images/ --output jsonl > classes.jsonl
      mxrun infer runs/digits_lenet --split eval --json
      mxrun infer runs/digits_lenet images/ --outputs fc1 --to features.npy
      mxrun infer runs/flowers flowers.csv label=kind --output csv
      cat rows.csv | mxrun infer runs/regression -
      mxrun infer runs/gpt_tiny --prompt "ROMEO:" --length 200 --temperature 0.8 --top-k 20
      mxrun infer runs/gpt_tiny --prompts questions.txt --temperature 0 --json
    """
    from mxrun.base.flags import runs_folder
    from mxrun.commands import infer as command

    text = PromptOptions(prompt, prompts, length, temperature, top_k, top_p, seed)
    if text.is_requested:
        others = {"split": split, "top": top, "classes": classes, "outputs": outputs}
        text.check(inputs or (), {**others, "output": output, "to": to}, batch)
        model = ModelOptions(
            run, checkpoint, batch_number(batch), threads, precision, allow_changes, allow_plugins
        )
        generate(model, text, runs, json)
        return
    form = _output_format(output, to, top, json)
    files, settings = divide_settings(inputs or ())
    _check_records(files, split)
    names = _output_names(outputs)
    request = command.InferRequest(
        *(tuple(files), split, checkpoint, names, top, classes, batch_size(batch), threads),
        precision=precision.value if precision else None,
        allow_changes=allow_changes,
        allow_plugins=allow_plugins,
        settings=tuple(settings),
        runs=runs_folder(runs),
    )
    _infer(run, request, form, to, json)


def _infer(
    run: Path, request: command.InferRequest, form: OutputFormat, to: Path | None, json: bool
) -> None:
    """Run the network on records and write results and notes."""
    from mxrun.commands import infer as command
    from mxrun.report.infer import work_text
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.status import status

    with status(f"loading {run}"):
        inference = command.infer(run, request, write_note)
    write_notes(inference.notes)
    _run_and_write(inference, form, to, json)
    write_notes(inference.closing_notes)
    write_notes([work_text(inference.summary()), *([] if to is None else [f"wrote {to}"])])


def _check_records(inputs: Sequence[str], split: str | None) -> None:
    """Raise BadParameter unless exactly one of files and a split is given."""
    if inputs and split is not None:
        raise typer.BadParameter(
            f"{', '.join(inputs[:_MAX_NAMED_INPUTS])} and --split {split} both say what to run on: "
            "leave out the files or --split"
        )
    if not inputs and split is None:
        raise typer.BadParameter(
            "nothing to run on: name files, folders or - after RUN, such as images/, or a split of "
            "the run's data, such as --split eval"
        )


def _output_names(outputs: str | None) -> tuple[str, ...]:
    """Split `fc1,fc2` into names of layers. Raises BadParameter if a name is empty."""
    if outputs is None:
        return ()
    names = tuple(name.strip() for name in outputs.split(","))
    if not all(names):
        raise typer.BadParameter(
            f"--outputs {outputs!r} has an empty name: write layers such as fc1 or fc1,fc2"
        )
    return names


def _run_and_write(
    inference: command.Inference, form: OutputFormat, to: Path | None, json: bool
) -> None:
    """Run inference and write its results: at the end for a table or JSON, else by record."""
    from mxrun.report.infer import inference_table, progress_callback
    from mxrun.report.result import write_json, write_tables

    collected = json or form is OutputFormat.TABLE
    shown = collected or to is not None or not results().isatty()
    with progress_callback(inference.total, shown) as advance:
        if collected:
            rows = list(inference.rows(advance))
        else:
            _write(inference, form, to, advance)
    if json:
        write_json({**inference.summary(), "results": rows})
    elif collected:
        from mxrun.report.confusion import confusion_tables

        measured = inference.summary()["metrics"] or {}
        table = inference_table(inference.trained.built.options.name, rows)
        write_tables([table, *confusion_tables(measured, inference.classes)])


def _write(
    inference: command.Inference,
    form: OutputFormat,
    to: Path | None,
    advance: Callable[[int], None],
) -> None:
    """Write results: rows while they are computed, arrays at the end."""
    from mxrun.commands import infer as command
    from mxrun.report.infer import write_arrays, write_csv, write_jsonl

    if form is OutputFormat.JSONL:
        write_jsonl(inference.rows(advance), to)
    elif form is OutputFormat.CSV:
        write_csv(inference.rows(advance), to)
    else:
        names = [output.name for output in inference.outputs]
        if len(names) > 1 and to is not None and to.suffix == ".npy":
            raise typer.BadParameter(
                f"a .npy file holds one output, not {len(names)} ({', '.join(names)}): "
                f"write --to {to.with_suffix('.npz')}"
            )
        archive = len(names) > 1 or (to is not None and to.suffix == ".npz")
        write_arrays(command.result_arrays(list(inference.batches(advance))), archive, to)


def _output_format(
    output: OutputFormat | None, to: Path | None, top: int | None, json: bool
) -> OutputFormat:
    """Return the output format.

    Raises UserError if `to` cannot be written, BadParameter if the options contradict each other.
    """
    from mxrun.base.files import check_writable

    check_writable(to)
    form = output or OutputFormat.TABLE
    if to is not None:
        form = output or _OF_SUFFIX.get(to.suffix, OutputFormat.TABLE)
        if form is OutputFormat.TABLE:
            raise typer.BadParameter(_format_error(to, output))
    if form is OutputFormat.NPY and top is not None:
        raise typer.BadParameter(
            f"--top {top} selects classes, but npy holds the numbers of all: leave out --top, or "
            "write --output jsonl or csv"
        )
    if form is OutputFormat.NPY and to is None and results().isatty():
        raise typer.BadParameter("a terminal cannot show npy, which is binary: add --to FILE.npy")
    if json and (output or to):
        given = f"--to {to}" if to else f"--output {output.value}" if output else ""
        raise typer.BadParameter(
            f"--json prints everything to standard output: leave out {given}, or --json"
        )
    return form


def _format_error(to: Path, output: OutputFormat | None) -> str:
    """Return the message for a file whose format is unknown or not allowed."""
    if output is OutputFormat.TABLE:
        return "--output table is for the terminal: with --to write jsonl, csv or npy"
    ending = f"the ending {to.suffix!r}" if to.suffix else "a name without an ending"
    endings = ", ".join(_OF_SUFFIX)
    return (
        f"--to {to}: {ending} does not name a format: use one of {endings}, or add --output jsonl"
    )
