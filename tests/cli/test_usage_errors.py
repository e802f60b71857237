"""Errors in a command line are reported with the cause and a correction."""

from __future__ import annotations

from pathlib import Path

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
        ("generate runs/a", ["Did you mean 'infer'?"]),
        ("datasets download mnist", ["No such command 'download'. Did you mean 'fetch'?"]),
        ("convert digits_lenet -o a.pt", ["a.pt is named like a PyTorch file", "name it a.onnx"]),
        ("bench digits_lenet --phase test", ["'--phase': 'test' is not one of 'train', 'infer'"]),
        ("train digits_lenet --epochs 5", ["KEY=VALUE, without --: did you mean 'train.epochs'?"]),
        ("train digits_lenet --threads 5", ["without --: did you mean 'threads'?"]),
        ("train digits_lenet --lr 5", ["without --: lr is a parameter of the optimizer"]),
        ("train digits_lenet --gpu", ["`context: gpu` is an NVIDIA card"]),
        ("train digits_lenet --resum", ["No such option: --resum (Possible options: --resume)"]),
        ("train digits_lenet --foo", ["Error: No such option: --foo"]),
        ("bench digits_lenet --against pytorch", ["mxrun calls it torch"]),
        (
            "evaluate digits_lenet",
            ["digits_lenet is a config: `mxrun train digits_lenet` makes a run"],
        ),
        ("xyzzy", ["No such command 'xyzzy'. Commands: init, train, launch, evaluate, infer,"]),
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
def test_each_mistake_has_its_own_answer(
    arguments: str, texts: list[str], empty_folder: Path
) -> None:
    # Without the run that the working folder may have.
    found = message_of(*arguments.split())
    for text in texts:
        assert text in found
    assert "Value error" not in found


# Beginnings of files with weights of other programs.
WEIGHTS = {
    ".pt": b"PK\3\4",
    ".PTH": b"PK\3\4",
    ".h5": b"\x89HDF\r\n\x1a\n",
    ".params": b"\x12\x01\0\0\0\0\0\0",
    ".onnx": b"\x08\x07\x12\0",
    ".safetensors": b'\x0a\0\0\0\0\0\0\0{"a": {}}',
}


@pytest.mark.parametrize("suffix", WEIGHTS)
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("train FILE", "FILE"),
        ("check FILE", "FILE"),
        ("convert FILE -o a.onnx", "FILE"),
        ("evaluate FILE", "FILE is not a run"),
        ("infer FILE a.png", "FILE is not a run"),
        (
            "train digits_lenet train.start_from.run=FILE",
            "<command line>:1:22: train.start_from: FILE is not a run",
        ),
    ],
)
def test_weights_of_other_programs_are_answered_with_what_works(
    command: str,
    problem: str,
    is_there: bool,
    suffix: str,
    empty_folder: Path,
) -> None:
    file = f"net{suffix}"
    if is_there:
        Path(file).write_bytes(WEIGHTS[suffix])
    found = message_of(*command.replace("FILE", file).split())
    assert problem.replace("FILE", file) in found
    assert "train.start_from: {weights: FILE}" in found
    assert not is_there or "nothing is there" not in found


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "a.h5", "a.safetensors"])
def test_convert_names_no_file_like_one_of_another_format(name: str, tmp_path: Path) -> None:
    found = message_of("convert", "digits_lenet", "-o", str(tmp_path / name))
    assert "but convert writes ONNX" in found
    assert "name it " in found
    assert not [*tmp_path.iterdir()]
