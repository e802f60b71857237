"""`mxrun plot`: networks, operators and learning curves, as text, SVG and JSON."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, on_terminal, refused, result, succeeded

SVG = "{http://www.w3.org/2000/svg}"
RESNET = Path(__file__).parents[1] / "config" / "resnet50.yaml"
DATA = "data.train={dataset: synthetic, split: train, records: 32}"


def drawn(*arguments: str, cwd: Path) -> ElementTree.Element:
    """Return the drawing that a command writes. Raises ParseError if it is not well-formed."""
    done = succeeded(mxrun("plot", *arguments, "--svg", "out.svg", cwd=cwd))
    assert done.stderr == "mxrun: wrote out.svg\n"
    return ElementTree.parse(cwd / "out.svg").getroot()


def texts(drawing: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in drawing.iter(f"{SVG}text")]


def write_metrics(folder: Path, lines: list[str]) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def record(epoch: int, loss: float, evaluation: dict[str, Any] | None = None) -> str:
    part = {"loss": loss, "accuracy": 1 - loss / 4}
    return json.dumps({"epoch": epoch, "step": 10 * epoch, "train": part, "eval": evaluation or {}})


def test_X1_all_kinds_of_nodes_are_drawn(tmp_path: Path) -> None:
    report = result("plot", "digits_lenet", cwd=tmp_path)
    kinds = {node["name"]: node["kind"] for node in report["nodes"]}
    assert kinds["data"] == kinds["label"] == "input"
    assert kinds["conv1"] == "operator"
    assert kinds["conv1_weight"] == "variable"
    text = mxrun("plot", "digits_lenet", cwd=tmp_path).stdout
    rows = {line.split()[1]: line.split() for line in text.splitlines() if len(line.split()) > 2}
    assert rows["data"][0] == "○"
    assert rows["conv1"] == ["●", "conv1", "Convolution", "64x16x8x8", *rows["conv1"][4:]]
    assert " ".join(rows["conv1"][4:]) == "weight 16x1x3x3; bias 16"
    (unapplied,) = result("plot", "Convolution", "no_bias=true", cwd=tmp_path)["nodes"]
    assert unapplied["kind"] == "unapplied"
    assert [part["argument"] for part in unapplied["inputs"]] == ["data", "weight"]
    text = mxrun("plot", "Convolution", "no_bias=true", cwd=tmp_path).stdout
    assert "◌   convolution   Convolution   ?        data, weight ?" in text


def test_a_networks_drawing_has_its_nodes_shapes_and_classes(tmp_path: Path) -> None:
    drawing = drawn("digits_lenet", "data.batch_size=7", cwd=tmp_path)
    shown = texts(drawing)
    for text in ("digits_lenet, batch 7", "conv1", "Convolution 3x3", "weight 16x1x3x3; bias 16"):
        assert text in shown
    assert shown.count("7x16x8x8") == 2
    assert {"convolution", "activation", "pooling", "input"} <= set(shown)
    first = (tmp_path / "out.svg").read_bytes()
    drawn("digits_lenet", "data.batch_size=7", cwd=tmp_path)
    assert (tmp_path / "out.svg").read_bytes() == first


def test_a_network_in_dot_has_its_nodes_and_tensors(tmp_path: Path) -> None:
    done = mxrun("plot", "digits_lenet", "data.batch_size=7", "--dot", "net.dot", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "mxrun: wrote net.dot\n")
    text = (tmp_path / "net.dot").read_text()
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == 'digraph "digits_lenet" {'
    assert lines[1] == 'label="digits_lenet, batch 7";'
    label = "conv1\\nConvolution 3x3\\nweight 16x1x3x3; bias 16"
    colours = 'color="#0072b2", fillcolor="#0072b229"'
    assert f'"conv1" [label="{label}", style="filled", {colours}];' in lines
    assert '"data" -> "conv1" [label="7x1x8x8"];' in lines
    assert '"label" [label="label", style="rounded"];' in lines
    report = result("plot", "digits_lenet", cwd=tmp_path)
    drawn = [node for node in report["nodes"] if node["kind"] != "variable"]
    names = {node["name"] for node in drawn}
    edges = [part for node in drawn for part in node["inputs"] if part["node"] in names]
    assert sum(" -> " in line for line in lines) == len(edges)
    run = write_metrics(tmp_path / "run", [record(1, 0.5)])
    assert "--dot is for networks" in refused("plot", str(run), "--dot", "x.dot", cwd=tmp_path)


def test_an_unfolded_residual_network_stays_readable(tmp_path: Path) -> None:
    report = result("plot", str(RESNET), DATA, cwd=tmp_path)
    names = [node["name"] for node in report["nodes"] if node["kind"] != "variable"]
    text = succeeded(mxrun("plot", str(RESNET), DATA, "--depth", "all", cwd=tmp_path)).stdout
    rows = [line for line in text.splitlines() if "●" in line or "○" in line][:-1]
    assert len(rows) == len(names) > 170
    # Each unit's shortcut is a second lane, and no unit needs a third but for the label.
    assert all(row[2:8].rstrip() in {"●", "○", "├─●", "│ ●", "● │", "●─╯", "│ ○"} for row in rows)
    assert sum("●─╯" in row for row in rows) == 16 + 1
    drawing = drawn(str(RESNET), DATA, "--depth", "all", cwd=tmp_path)
    shown = texts(drawing)
    assert set(names) <= set(shown)
    assert {"stage1", "stage1/unit1", "stage4/unit3"} <= set(shown)


def test_a_large_network_is_folded_alike_everywhere(tmp_path: Path) -> None:
    shown = texts(drawn("resnet50_imagenet", cwd=tmp_path))
    text = succeeded(mxrun("plot", "resnet50_imagenet", cwd=tmp_path)).stdout
    assert "stage3/unit2 … unit6 ×5" in shown
    assert "50 layers, 5.59 M parameters" in shown
    assert "/unit2 … unit6 ×5   50 layers" in text
    assert "177 nodes in 28 rows. --depth 1 (11 rows), " in text
    succeeded(mxrun("plot", "resnet50_imagenet", "--dot", "net.dot", cwd=tmp_path))
    assert '"stage3/unit2/" -> "stage4/branch/"' in (tmp_path / "net.dot").read_text()
    shown = texts(drawn("resnet50_imagenet", "--depth", "1", cwd=tmp_path))
    assert {"stem", "stage1", "stage4"} <= set(shown)
    assert not any("unit" in each for each in shown)


def test_depths_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for depth in ("0", "-1", "many"):
        told = mxrun("plot", "digits_lenet", f"--depth={depth}", cwd=tmp_path)
        assert told.returncode == 2
        assert f"{depth!r} is neither a number from 1 on nor 'all'" in told.stderr
    run = write_metrics(tmp_path / "run", [record(1, 0.5)])
    assert "--depth is for networks" in refused("plot", str(run), "--depth=2", cwd=tmp_path)


def test_curves_of_a_run_are_drawn(tmp_path: Path) -> None:
    records = [record(epoch, 2 / epoch, {"loss": 2.2 / epoch}) for epoch in range(1, 6)]
    write_metrics(tmp_path / "runs" / "net", records)
    report = result("plot", "runs/net", cwd=tmp_path)
    assert report["kind"] == "curves"
    (run,) = report["runs"]
    assert run["epochs"] == [1, 2, 3, 4, 5]
    metrics = {metric["name"]: metric for metric in run["metrics"]}
    assert metrics["loss"]["eval"] == [2.2 / epoch for epoch in range(1, 6)]
    assert metrics["accuracy"]["eval"] == [None] * 5
    text = mxrun("plot", "runs/net", cwd=tmp_path).stdout
    assert "net, 5 epochs" in text
    assert "train 0.4000" in text
    assert "eval 0.4400" in text
    shown = texts(drawn("runs/net", cwd=tmp_path))
    assert {"net", "loss", "accuracy", "train 0.4000", "eval 0.4400"} <= set(shown)


def test_a_folder_of_data_does_not_hide_the_run_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for name in ("photos", "other"):
        write_metrics(tmp_path / "runs" / name, [record(1, 0.5), record(2, 0.4)])
    (run,) = result("plot", "photos", cwd=tmp_path)["runs"]
    assert run["epochs"] == [1, 2]
    report = result("plot", "photos", "other", cwd=tmp_path)
    assert [run["name"] for run in report["runs"]] == ["photos", "other"]


def test_curves_follow_a_real_run(tmp_path: Path) -> None:
    short = ("digits_lenet", "train.epochs=2", "threads=1")
    result("train", *short, cwd=tmp_path)
    report = result("plot", "runs/digits_lenet", cwd=tmp_path)
    (run,) = report["runs"]
    assert run["epochs"] == [1, 2]
    assert {metric["name"] for metric in run["metrics"]} >= {"loss", "accuracy"}
    assert run["learning_rate"] == pytest.approx([0.1, 0.1])
    shown = texts(drawn("runs/digits_lenet/config.yaml", cwd=tmp_path))
    assert "digits_lenet, batch 64" in shown


def test_the_terminals_width_is_used(tmp_path: Path) -> None:
    records = [record(epoch, 2 / epoch) for epoch in range(1, 6)]
    folder = write_metrics(tmp_path / "net", records)
    environment = {"COLUMNS": "60", "NO_COLOR": "1"}
    code, shown = on_terminal("plot", str(folder), environment=environment)
    assert code == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert 50 < max(map(len, lines)) <= 60


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "JSONDecodeError"),
        ('{"epoch":2,"step":', "JSONDecodeError"),
        ("[]", "this line is damaged"),
        ('{"epoch":2,"step":20,"train":{"loss":"low"},"eval":{}}', "this line is damaged"),
        ('{"epoch":2,"step":20,"train":[]}', "this line is damaged"),
        ('{"epoch":2,"step":20,"train":{"loss":1e999},"eval":{}}', "this line is damaged"),
        pytest.param(
            f'{{"epoch":2,"step":20,"train":{{"loss":{10**400}}},"eval":{{}}}}',
            "this line is damaged",
            id="400 digits",
        ),
        (f'{{"epoch":{10**30},"step":20,"train":{{}},"eval":{{}}}}', "this line is damaged"),
        pytest.param("[" * 100_000, "this line is damaged", id="deep"),
        ('{"epoch":true,"step":20,"train":{},"eval":{}}', "this line is damaged"),
        ('{"epoch":1,"step":20,"train":{},"eval":{}}', "epoch 1 after epoch 1"),
    ],
)
def test_a_damaged_line_is_named(line: str, told: str, tmp_path: Path) -> None:
    write_metrics(tmp_path / "net", [record(1, 0.5), line, record(3, 0.25)])
    text = refused("plot", "net", cwd=tmp_path)
    assert text.startswith("net/metrics.jsonl:2:1: this line is damaged")
    assert told in text


def test_bytes_that_are_no_text_are_a_damaged_line(tmp_path: Path) -> None:
    folder = write_metrics(tmp_path / "net", [record(1, 0.5)])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\x01\xfe\n")
    assert "net/metrics.jsonl:2:1: " in refused("plot", "net", cwd=tmp_path)


def test_a_run_without_an_epoch_has_no_curves(tmp_path: Path) -> None:
    write_metrics(tmp_path / "net", [])
    assert "no finished epoch" in refused("plot", "net", cwd=tmp_path)


def test_a_run_takes_no_overrides(tmp_path: Path) -> None:
    write_metrics(tmp_path / "net", [record(1, 0.5)])
    assert "mxrun plot net/config.yaml" in refused("plot", "net", "train.epochs=3", cwd=tmp_path)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    assert "did you mean 'digits_lenet'" in refused("plot", "digits_lene", cwd=tmp_path)
    (tmp_path / "folder").mkdir()
    assert "is a folder" in refused("plot", "folder", cwd=tmp_path)
    text = refused("plot", "digits_lenet", "--svg", "no/such/folder.svg", cwd=tmp_path)
    assert "cannot write" in text


def test_dot_goes_to_standard_output(tmp_path: Path) -> None:
    text = refused("plot", "digits_lenet", "--dot", "-", cwd=tmp_path)
    assert "cannot write -: - is not a file: for standard output write /dev/stdout" in text
    assert not any(tmp_path.iterdir())
    done = succeeded(mxrun("plot", "digits_lenet", "--dot", "/dev/stdout", cwd=tmp_path))
    assert done.stdout.startswith("digraph")


def test_curves_of_several_runs_are_drawn_together(tmp_path: Path) -> None:
    for name, factor in (("first", 1.0), ("second", 2.0)):
        records = [record(epoch, factor / epoch, {"loss": factor / epoch}) for epoch in (1, 2)]
        write_metrics(tmp_path / "all" / name, records)
    runs = ("first", "all/second", "--runs", "all")
    report = result("plot", *runs, cwd=tmp_path)
    assert [run["run_dir"] for run in report["runs"]] == ["all/first", "all/second"]
    text = succeeded(mxrun("plot", *runs, cwd=tmp_path)).stdout
    assert "  a first    train 0.5000   eval 0.5000 " in text
    assert "  b second   train 1.0000   eval 1.0000 " in text
    assert {"first", "second", "2 runs"} <= set(texts(drawn(*runs, cwd=tmp_path)))
    assert "loss, logarithmic" in texts(drawn(*runs, "--log", cwd=tmp_path))
    text = refused("plot", "first", "digits_lenet", "--runs", "all", cwd=tmp_path)
    assert text.startswith("digits_lenet is not a run")


def test_a_config_goes_before_a_run_of_its_name(tmp_path: Path) -> None:
    write_metrics(tmp_path / "runs" / "digits_lenet", [record(1, 0.5)])
    done = succeeded(mxrun("plot", "digits_lenet", cwd=tmp_path))
    assert "Convolution" in done.stdout
    assert "mxrun plot runs/digits_lenet draws its learning curves" in done.stderr
    write_metrics(tmp_path / "runs" / "mine", [record(1, 0.5)])
    assert "mine, 1 epoch" in succeeded(mxrun("plot", "mine", cwd=tmp_path)).stdout
