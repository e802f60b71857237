"""`mxrun infer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.infer import InferOptions, OutputFormat
from mxrun.options.shared import divide_settings
from mxrun.report.streams import results

if TYPE_CHECKING:
    from mxrun.commands.infer import Forecasts, Inference

# Limit of the inputs that a message lists.
_MAX_NAMED_INPUTS = 3
_OF_SUFFIX: dict[str, OutputFormat] = {
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".npy": "npy",
    ".npz": "npy",
    ".svg": "svg",
}


@COMMANDS.register("infer", order=40, foreign={"infer": "predict run generate sample chat"})
def infer(options: InferOptions) -> None:
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
    from mxrun.commands import infer as command
    from mxrun.report.infer import work_text
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.status import status

    if options.generates_text:
        _generate(options)
        return
    form = _output_format(options)
    files, _ = divide_settings(options.inputs)
    _check_records(files, options.split)
    _check_names(options.outputs or ())
    with status(f"loading {options.run}"):
        inference = command.infer(options, write_note)
    write_notes(inference.notes)
    if isinstance(inference, command.Forecasts):
        _write_forecasts(inference, options)
        return
    _run_and_write(inference, form, options)
    write_notes(inference.closing_notes)
    wrote = [] if options.to is None else [f"wrote {options.to}"]
    write_notes([work_text(inference.summary()), *wrote])


def _generate(options: InferOptions) -> None:
    """Continue the prompts and write the texts: a single one while it is generated."""
    from mxrun.commands import generate as command
    from mxrun.report.generation import generation_text, write_streamed, write_texts
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json
    from mxrun.report.status import status

    prompts = command.prompts_of(options)
    with status(f"loading {options.run}"):
        generation = command.generate(options, prompts, write_note)
    write_notes(generation.notes)
    if len(prompts) == 1 and not options.json:
        write_streamed(prompts[0].text, (piece.text for piece in generation.run()))
    else:
        for _ in generation.run():
            pass
    if options.json:
        write_json(generation.to_json())
    elif len(prompts) > 1:
        write_texts([each.prompt + each.text for each in generation.texts])
    write_notes([generation_text(generation.summary())])


def _write_forecasts(forecasts: Forecasts, options: InferOptions) -> None:
    """Write predicted steps: one row each, or a drawing."""
    from mxrun.report.forecasts import forecast_svg, forecast_table
    from mxrun.report.infer import write_drawing, write_forecast_csv, write_jsonl
    from mxrun.report.notes import write_notes
    from mxrun.report.result import write_json, write_tables

    report = forecasts.to_json()
    rows = report["results"]
    form = _output_format(options)
    if form == "npy":
        raise typer.BadParameter("a forecast is written as jsonl, csv or svg")
    if options.json:
        write_json({"run": options.run.name, **report})
    elif form == "svg" and options.to is not None:
        write_drawing(forecast_svg(options.run.name, report), options.to)
    elif form == "jsonl":
        write_jsonl(rows, options.to)
    elif form == "csv":
        write_forecast_csv(rows, options.to)
    else:
        write_tables([forecast_table(options.run.name, rows)])
    if options.to is not None:
        write_notes([f"wrote {options.to}"])


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


def _check_names(outputs: Sequence[str]) -> None:
    """Raise BadParameter if the name of an output is empty."""
    if not all(outputs):
        raise typer.BadParameter(
            f"--outputs {','.join(outputs)!r} has an empty name: write layers such as fc1 or "
            "fc1,fc2"
        )


def _run_and_write(inference: Inference, form: OutputFormat, options: InferOptions) -> None:
    """Run inference and write its results: at the end for a table or JSON, else by record."""
    from mxrun.report.infer import inference_table, progress_callback
    from mxrun.report.result import write_json, write_tables

    collected = options.json or form == "table"
    shown = collected or options.to is not None or not results().isatty()
    with progress_callback(inference.total, shown) as advance:
        if collected:
            rows = list(inference.rows(advance))
        else:
            _write(inference, form, options.to, advance)
    if options.json:
        write_json({**inference.summary(), "results": rows})
    elif collected:
        from mxrun.report.confusion import confusion_tables

        measured = inference.summary()["metrics"] or {}
        table = inference_table(inference.trained.built.options.name, rows)
        write_tables([table, *confusion_tables(measured, inference.classes)])


def _write(
    inference: Inference,
    form: OutputFormat,
    to: Path | None,
    advance: Callable[[int], None],
) -> None:
    """Write results: rows while they are computed, arrays at the end."""
    from mxrun.commands import infer as command
    from mxrun.report.infer import write_arrays, write_csv, write_jsonl

    if form == "jsonl":
        write_jsonl(inference.rows(advance), to)
    elif form == "csv":
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


def _output_format(options: InferOptions) -> OutputFormat:
    """Return the output format.

    Raises UserError if `--to` cannot be written, BadParameter if the options contradict each other.
    """
    from mxrun.base.files import check_writable

    output, to, top = options.output, options.to, options.top
    check_writable(to)
    form = output or "table"
    if to is not None:
        form = output or _OF_SUFFIX.get(to.suffix, "table")
        if form == "table":
            raise typer.BadParameter(_format_error(to, output))
    if form == "svg" and to is None:
        raise typer.BadParameter("a drawing needs a file: add --to FILE.svg")
    if form == "npy" and top is not None:
        raise typer.BadParameter(
            f"--top {top} selects classes, but npy holds the numbers of all: leave out --top, or "
            "write --output jsonl or csv"
        )
    if form == "npy" and to is None and results().isatty():
        raise typer.BadParameter("a terminal cannot show npy, which is binary: add --to FILE.npy")
    if options.json and (output or to):
        given = f"--to {to}" if to else f"--output {output}"
        raise typer.BadParameter(
            f"--json prints everything to standard output: leave out {given}, or --json"
        )
    return form


def _format_error(to: Path, output: OutputFormat | None) -> str:
    """Return the message for a file whose format is unknown or not allowed."""
    if output == "table":
        return "--output table is for the terminal: with --to write jsonl, csv or npy"
    ending = f"the ending {to.suffix!r}" if to.suffix else "a name without an ending"
    endings = ", ".join(_OF_SUFFIX)
    return (
        f"--to {to}: {ending} does not name a format: use one of {endings}, or add --output jsonl"
    )
