"""Training without data: a config without a path uses synthetic data, and reports it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, refused, succeeded
from consoles import printed
from layer_configs import classifier, config_file, network_text
from refusals import only_problem
from training import prepare, run_training, run_with_notes

from mxrun.base.errors import UserError
from mxrun.base.flags import runs_folder
from mxrun.commands.check import check
from mxrun.commands.convert import convert
from mxrun.commands.infer import infer
from mxrun.commands.plot import plot
from mxrun.config import load_config
from mxrun.config.bundled import find_config
from mxrun.options.convert import ConvertOptions
from mxrun.options.infer import InferOptions
from mxrun.preparation.planning import load
from mxrun.preparation.synthetic_data import NO_PATH, synthetic_sections, with_synthetic_data
from mxrun.report.progress import EpochLines
from mxrun.report.tables import train_table

SMALL = ("data.batch_size=8", "train.epochs=1", "threads=2")
HEAD = (
    network_text(classifier(3), inputs="{data: [4], label: []}")
    + """\
train: {epochs: 2, optimizer: {sgd: {lr: 0.1}}, metrics: [accuracy]}
"""
)


def net(folder: Path, train: str, evaluation: str | None = None) -> Path:
    """Write a config with these data sections."""
    data = f"data:\n  batch_size: 4\n  train: {{{train}}}\n"
    return config_file(folder, HEAD + data + (f"  eval: {{{evaluation}}}\n" if evaluation else ""))


def trained(config: Path, *overrides: str, **request: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the summary and the notes of a run in this folder."""
    return run_with_notes("threads=2", *overrides, config=config, **request)


def test_a_bundled_config_trains_without_its_files(tmp_path: Path) -> None:
    done = succeeded(mxrun("train", "resnet20_cifar10", *SMALL, "--json", cwd=tmp_path))
    assert done.stderr.splitlines()[0] == f"mxrun: {NO_PATH}"
    assert done.stderr.count(NO_PATH) == 1
    summary = json.loads(done.stdout)
    assert summary["synthetic_data"] is True
    assert summary["steps"] == 8
    assert 0 <= summary["eval"]["accuracy"] <= 1
    saved = load_config(tmp_path / summary["run_dir"] / "config.yaml")
    assert saved.missing == ()
    train, evaluation = saved.data.train, saved.data.eval
    assert evaluation is not None
    for section, split in ((train, "train"), (evaluation, "test")):
        assert section.dataset == "synthetic"
        assert section.split is not None
        assert section.split.of == split
        assert section.transforms is None
        options = {key: marked.plain() for key, marked in section.options.items()}
        assert options == {"records": 64, "classes": 10}
    assert (train.shuffle, evaluation.shuffle) == (True, False)


def test_a_synthetic_run_is_another_run_than_one_on_data(
    empty_folder: Path,
) -> None:
    Path("some.csv").write_text("".join(f"{n},{n + 1},0,1,{n % 3}\n" for n in range(12)))
    config = net(empty_folder, "dataset: csv, label: 4")
    on_data = ("data.train.path=some.csv",)
    first, notes = trained(config)
    assert first["synthetic_data"]
    assert notes == [NO_PATH]
    with pytest.raises(UserError) as caught:
        trained(config, *on_data, resume=True)
    assert "dataset: synthetic" in str(caught.value)
    assert "data.train: its records have changed" in str(caught.value)
    # The run itself resumes, and its own config needs no synthetic data.
    second, notes = trained(config, resume=True)
    assert second == first
    assert notes[0] == NO_PATH
    again, notes = trained(Path("runs/net/config.yaml"), "name=again")
    assert again["synthetic_data"]
    assert notes == []
    real, notes = trained(config, *on_data, overwrite=True)
    assert not real["synthetic_data"]
    assert notes == []


def test_every_command_on_a_run_says_that_its_data_were_synthetic(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("some.csv").write_text("".join(f"{n},{n + 1},0,1,{n % 3}\n" for n in range(12)))
    config = net(empty_folder, "dataset: csv, label: 4")
    summary = run_training(config=config, observer=EpochLines(print))
    note, start, values, *epochs = capsys.readouterr().out.splitlines()
    assert NO_PATH in note
    assert start.endswith(", synthetic data")
    assert values == "data: numbers as they are"
    assert len(epochs) == 2
    assert all("(synthetic data)" in line for line in epochs)
    assert "synthetic data" in printed(train_table(summary), width=80)
    run = Path("runs/net")
    said = "runs/net was trained on synthetic data (dataset: synthetic), not on data of a real task"
    saved = next(run.glob("checkpoint-*"))
    for folder in (run, saved):
        options = InferOptions(run=folder, split="train")
        assert said in infer(options).trained.notes
        converted = convert(ConvertOptions(source=str(folder), output=Path("net.onnx")))
        assert said in converted.notes
        assert converted.metadata["mxrun.synthetic_data"] == "true"
    assert plot([str(run)], (), runs_folder())["notes"] == [said]
    start_from = "train.start_from.run=runs/net"
    real, notes = trained(config, "name=warm", "data.train.path=some.csv", start_from)
    assert notes == [said]
    assert not real["synthetic_data"]
    (note,) = infer(InferOptions(run=Path("runs/warm"), split="train")).trained.notes
    assert note.startswith("runs/warm/checkpoint-")


def test_a_path_that_is_given_must_be_there(tmp_path: Path) -> None:
    text = refused("train", "resnet20_cifar10", "data.train.path=nowhere", *SMALL, cwd=tmp_path)
    assert "nowhere" in text
    assert NO_PATH not in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("path", ["", ', path: "??? the file"', ", path: null"])
def test_a_path_left_out_is_a_path_to_be_given(tmp_path: Path, path: str) -> None:
    built = load(net(tmp_path, f"dataset: csv, label: 4{path}", "dataset: csv, label: 4"))
    assert not built.data
    (missing,) = built.missing
    assert missing.problem == "data.train.path must be given"
    assert missing.expected.lower().startswith("the file")
    assert "data.train.path=VALUE" in missing.hint
    assert list(synthetic_sections(built)) == ["train", "eval"]
    with pytest.raises(UserError, match=r"data\.train\.path must be given"):
        prepare(built)
    assert check(tmp_path / "net.yaml").parameters == 15


@pytest.mark.parametrize("name", ["mlp_mnist", "resnet20_cifar10"])
def test_a_run_on_synthetic_data_is_the_one_that_its_saved_config_describes(
    tmp_path: Path, name: str
) -> None:
    built = with_synthetic_data(load(find_config(name)))
    saved = config_file(tmp_path, built.options.resolved(), "config.yaml")
    again = load(saved)
    assert again.options == built.options
    assert again.options.sha256() == built.options.sha256()
    assert again.data == built.data
    assert with_synthetic_data(again) is again


def test_a_path_is_taken_back_by_null(tmp_path: Path) -> None:
    text = "dataset: csv, label: 4, path: nowhere.csv"
    config = net(tmp_path, text, "dataset: csv, label: 4")
    assert synthetic_sections(load(config)) == {}
    assert len(synthetic_sections(load(config, ("data.train.path=null",)))) == 2
    config = net(tmp_path, text, text)
    missing = only_problem(prepare, load(config, ("data.train.path=null",)))
    assert missing.problem == "data.train.path must be given"
    assert missing.place is not None
    assert missing.place.file == "<command line>"


@pytest.mark.parametrize("path", ["3", "''"])
def test_a_wrong_path_is_one_mistake_of_two_sections(tmp_path: Path, path: str) -> None:
    config = net(tmp_path, "dataset: csv, label: 4", "dataset: csv, label: 4")
    problem = only_problem(load, config, (f"data.train.path={path}",))
    assert problem.problem.startswith("parameter 'path")
    assert problem.place is not None
    assert problem.place.file == "<command line>"


@pytest.mark.parametrize(
    ("train", "evaluation", "missing"),
    [
        ("dataset: csv, label: 4", "dataset: csv, label: 4, path: some.csv", "train"),
        ("dataset: csv, label: 4", "dataset: synthetic, split: test", "train"),
        ("dataset: csv, label: 4, path: some.csv", "dataset: npz", "eval"),
    ],
)
def test_one_section_without_its_path_is_a_mistake(
    tmp_path: Path, train: str, evaluation: str, missing: str
) -> None:
    config = net(tmp_path, train, evaluation)
    assert synthetic_sections(load(config)) == {}
    with pytest.raises(UserError, match=rf"data\.{missing}\.path must be given"):
        trained(config)


def test_what_else_is_wrong_with_a_section_is_told_without_a_path(tmp_path: Path) -> None:
    text = refused("check", str(net(tmp_path, "dataset: csv, lable: 4")), cwd=tmp_path)
    assert "unknown parameter 'lable'" in text
    assert "'label'" in text
    assert "path" not in text.partition("expected")[0]


@pytest.mark.parametrize(
    ("name", "size", "records", "classes"),
    [("mlp_mnist", 64, 512, 10), ("resnet50_imagenet", 256, 1536, 1000)],
)
def test_records_fill_a_few_batches_and_have_the_classes_of_the_loss(
    name: str, size: int, records: int, classes: int
) -> None:
    built = load(find_config(name))
    assert built.model.batch_size == size
    for section in synthetic_sections(built).values():
        assert (section["records"], section["classes"]) == (records, classes)
