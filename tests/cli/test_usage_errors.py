"""Errors in a command line are reported with the cause and a correction."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from mxrun.base.errors import UserError
from mxrun.cli.main import app


def message_of(*arguments: str) -> str:
    """Return the message of a command that refuses its arguments, on one line."""
    done = CliRunner().invoke(app, list(arguments))
    if isinstance(done.exception, UserError):
        return " ".join(str(done.exception).split())
    assert done.exit_code == 2, (arguments, done.output, done.exception)
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ("export net.yaml", ["No such command 'export'", "Did you mean 'convert'?"]),
        ("inspect net.yaml", ["Did you mean 'inspect-memory'?"]),
        ("eval runs/a", ["Did you mean 'evaluate'?"]),
        ("xyzzy", ["No such command 'xyzzy'. Commands: init, train, evaluate, infer,"]),
        ("infer", ["Missing argument 'RUN'"]),
        ("infer runs/a", ["nothing to run on", "images/", "--split eval"]),
        ("infer runs/a a.png b.png --split eval", ["a.png, b.png and --split eval both say"]),
        ("infer runs/a a.png --json --to f.npy", ["leave out --to f.npy, or --json"]),
        ("infer runs/a a.png --json --output csv", ["leave out --output csv, or --json"]),
        (
            "infer runs/a a.png --to f.foo",
            ["the ending '.foo' does not name a format", ".jsonl, .csv"],
        ),
        ("infer runs/a a.png --to results", ["a name without an ending does not name a format"]),
        ("infer runs/a a.png --to f.csv --output table", ["--output table is for the terminal"]),
        ("infer runs/a a.png --to f.npy --top 2", ["--top 2 selects classes", "leave out --top"]),
        ("infer runs/a a.png --outputs fc1,,fc2", ["'fc1,,fc2' has an empty name", "fc1,fc2"]),
        ("train net.yaml --resume --overwrite", ["--resume continues the run", "give only one"]),
        (
            "train net.yaml --allow-changes",
            ["--allow-changes applies to --resume only", "add --resume"],
        ),
        ("train digits_lenet epochs", ["not an override", "'epochs'", "train.epochs=3"]),
        ("inspect-memory", ["nothing to inspect", "inspect-memory --problem blocks.csv"]),
        (
            "inspect-memory a.yaml --problem b.csv --phase infer",
            [
                "CONFIG, --phase cannot be combined with it",
                "--problem b.csv accepts --time-limit",
            ],
        ),
        (
            "inspect-memory a.yaml --what-if --diff b.yaml",
            ["--what-if cannot be combined with --diff", "two commands"],
        ),
        (
            "bench digits_lenet --peer-python torch=/a",
            ["--peer-python is given for torch", "add --against torch"],
        ),
    ],
)
def test_each_mistake_has_its_own_answer(arguments: str, texts: list[str]) -> None:
    found = message_of(*arguments.split())
    for text in texts:
        assert text in found
