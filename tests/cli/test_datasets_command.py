"""`mxrun datasets`: its output, files and errors, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_dataset
from commands import HANG_S, mxrun, on_terminal, refused, result, succeeded
from file_server import Answer, serving
from PIL import Image

CONFIG = """
name: photos
network:
  inputs: {{data: [3, 8, 8], label: []}}
  layers: [{{FullyConnected: {{num_hidden: 2}}}}, SoftmaxOutput: {{label: label}}]
data:
  batch_size: 4
  train: {{dataset: image_folder, path: photos, split: all, shuffle: true, transforms: [{transforms}]}}
  eval: {{dataset: image_folder, split: all}}
train: {{epochs: 1, optimizer: {{sgd: {{lr: 0.1}}}}}}
"""
COLORS = {"blue": (0, 0, 255), "red": (255, 0, 0)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with ten images of two classes, and the config photos.yaml."""
    for kind, color in COLORS.items():
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number in range(5):
            size = (8 + number, 8)
            Image.new("RGB", size, color).save(tmp_path / "photos" / kind / f"{number}.png")
    text = CONFIG.format(transforms="{resize: {size: [8, 8]}}, flip, {normalize: {mean: 0.5}}")
    (tmp_path / "photos.yaml").write_text(text)
    return tmp_path


def damage(folder: Path) -> None:
    (folder / "photos/blue/1.png").write_bytes(b"")
    content = (folder / "photos/red/3.png").read_bytes()
    (folder / "photos/red/3.png").write_bytes(content[:40])


def test_it_lists_and_describes_every_data_set() -> None:
    rows = {row["name"]: row for row in result("datasets", "list")["datasets"]}
    assert rows["mnist"]["kind"] == "published"
    assert rows["digits"]["kind"] == "bundled"
    assert rows["csv"]["kind"] == "your files"
    assert rows["synthetic"]["kind"] == "synthetic"
    assert "fashion_mnist" in succeeded(mxrun("datasets", "list")).stdout
    cifar = result("datasets", "describe", "cifar10")
    assert cifar["splits"] == ["train", "test"]
    assert [option["name"] for option in cifar["options"]] == ["path"]
    assert cifar["files"]["fetch"] == "mxrun datasets fetch cifar10"
    assert len(cifar["files"]["files"][0]["members"]) == 6
    text = succeeded(mxrun("datasets", "describe", "digits")).stdout
    assert "CC BY 4.0" in text
    assert "train, test, all" in text
    assert "did you mean 'mnist'" in refused("datasets", "describe", "minst")


def test_unknown_subcommands_are_answered_once() -> None:
    done = mxrun("datasets", "fech", "mnist", "--json")
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert "Did you mean 'fetch'?" in json.loads(line)["error"]["message"]
    assert "datasets fetch" in mxrun("download", "mnist").stderr


def test_peek_draws_the_images_that_training_reads(photos: Path) -> None:
    report = result("datasets", "peek", "photos.yaml", "--count", "6", "--seed", "3", cwd=photos)
    assert report["files"] == {"data": "photos_train.png"}
    sheet = np.asarray(Image.open(photos / "photos_train.png"))
    for record in report["records"]:
        assert record["file"].endswith(".png")
        assert record["label"] == Path(record["file"]).parent.name
        assert record["inputs"]["data"]["shape"] == [3, 8, 8]
        # normalize is undone in the picture, but not in the numbers.
        assert record["inputs"]["data"]["min"] == -0.5
    colors = {tuple(color) for color in sheet.reshape(-1, 3).tolist()}
    assert set(COLORS.values()) <= colors
    again = result("datasets", "peek", "photos.yaml", "--count", "6", "--seed", "3", cwd=photos)
    assert again == report
    other = result("datasets", "peek", "photos.yaml", "--count", "6", "--epoch", "2", cwd=photos)
    assert other["records"] != report["records"]


def test_peek_shows_records_without_transforms(photos: Path) -> None:
    arguments = ("peek", "photos.yaml", "--split", "eval", "--raw", "--to", "raw.png")
    report = result("datasets", *arguments, cwd=photos)
    assert [record["record"] for record in report["records"]] == list(range(10))
    shapes = [record["inputs"]["data"]["shape"] for record in report["records"]]
    assert shapes[:5] == [[3, 8, 8 + number] for number in range(5)]
    with Image.open(photos / "raw.png") as sheet:
        assert sheet.format == "PNG"


def test_peek_reads_what_training_reads(photos: Path) -> None:
    from mxrun.session.data_sample import SampleRequest, sample_records
    from mxrun.session.data_sections import open_sections
    from mxrun.session.planning import load
    from mxrun.session.run import Run

    sections = open_sections(photos / "photos.yaml")
    sample = sample_records(sections, SampleRequest(count=4, epoch=2))
    other = sample_records(sections, SampleRequest(count=10, epoch=2))
    for few, many in zip(sample.records, other.records):
        assert (few.number, few.label) == (many.number, many.label)
        assert np.array_equal(few.rows["data"], many.rows["data"])
    del load, Run


def test_peek_prints_vectors(tmp_path: Path) -> None:
    rows = "\n".join(f"{number},{number * 2},{'ab'[number % 2]}" for number in range(6))
    (tmp_path / "t.csv").write_text(f"width,height,kind\n{rows}\n")
    (tmp_path / "t.yaml").write_text(
        "name: t\n"
        "network:\n"
        "  inputs: {data: [2], label: []}\n"
        "  layers: [{FullyConnected: {num_hidden: 2}}, SoftmaxOutput: {label: label}]\n"
        "data:\n"
        "  batch_size: 2\n"
        "  train: {dataset: csv, path: t.csv, header: true}\n"
        "train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}\n"
    )
    text = succeeded(mxrun("datasets", "peek", "t.yaml", "--count", "3", cwd=tmp_path)).stdout
    assert "width   height" in text
    lines = [line.split() for line in text.splitlines() if line.startswith("  ")]
    assert lines[-3:] == [["0", "a", "0", "0"], ["1", "b", "1", "2"], ["2", "a", "2", "4"]]
    assert sorted(os.listdir(tmp_path)) == ["t.csv", "t.yaml"]
    assert "no data.eval" in refused("datasets", "peek", "t.yaml", "--split", "eval", cwd=tmp_path)
    measured = result("datasets", "stats", "t.yaml", cwd=tmp_path)["sections"]["train"]
    assert measured["fields"]["data"]["names"] == ["width", "height"]
    assert measured["fields"]["data"]["mean"] == [2.5, 5.0]


def test_stats_are_those_of_all_values(photos: Path) -> None:
    report = result("datasets", "stats", "photos.yaml", "--workers", "3", cwd=photos)
    train = report["sections"]["train"]
    assert train["classes"] == {"blue": 5, "red": 5}
    assert train["fields"]["data"]["mean"] == [0.5, 0.0, 0.5]
    assert train["fields"]["data"]["std"] == [0.5, 1.0, 0.5]
    sizes = train["fields"]["data"]["sizes"]
    assert (sizes["least"], sizes["greatest"], sizes["images"]) == ([8, 8], [8, 12], 10)
    transform = report["transforms"]["data"]
    assert transform == "normalize: {mean: [0.5, 0.0, 0.5], std: [0.5, 1.0, 0.5]}"
    # What is printed can be pasted.
    text = CONFIG.format(transforms=f"{{resize: {{size: [8, 8]}}}}, {{{transform}}}")
    (photos / "photos.yaml").write_text(text)
    succeeded(mxrun("check", "photos.yaml", cwd=photos))
    assert (
        f"- {transform}" in succeeded(mxrun("datasets", "stats", "photos.yaml", cwd=photos)).stdout
    )
    one = result("datasets", "stats", "photos.yaml", "--workers", "1", cwd=photos)
    assert one["sections"] == report["sections"]


def test_stats_leave_out_what_cannot_be_read(photos: Path) -> None:
    damage(photos)
    train = result("datasets", "stats", "photos.yaml", cwd=photos)["sections"]["train"]
    assert (train["records"], train["unreadable"]) == (10, 2)
    assert train["fields"]["data"]["sizes"]["images"] == 8


def test_check_lists_every_damaged_record(photos: Path) -> None:
    whole = succeeded(mxrun("datasets", "check", "photos.yaml", cwd=photos))
    assert "all can be read" in whole.stdout
    damage(photos)
    done = mxrun("datasets", "check", "photos.yaml", "--json", "--workers", "2", cwd=photos)
    assert done.returncode == 2, done.stderr
    report = json.loads(done.stdout)
    assert report["records"] == {"train": 10, "eval": 10}
    assert not report["passed"]
    found = [(each["section"], each["record"], each["file"]) for each in report["damaged"]]
    blue, red = str(photos / "photos/blue/1.png"), str(photos / "photos/red/3.png")
    assert found == [
        ("train", 1, blue),
        ("train", 8, red),
        ("eval", 1, blue),
        ("eval", 8, red),
    ]
    assert [each["offset"] for each in report["damaged"]] == [0, 0, 0, 0]
    assert "byte 0: the file is empty" in report["damaged"][0]["problem"]
    text = mxrun("datasets", "check", "photos.yaml", cwd=photos)
    assert text.returncode == 2
    assert red in text.stdout


def test_check_finds_records_that_do_not_fit(photos: Path) -> None:
    (photos / "photos.yaml").write_text(CONFIG.format(transforms="{center_crop: {size: 8}}"))
    Image.new("RGB", (7, 8)).save(photos / "photos/red/4.png")
    done = mxrun("datasets", "check", "photos.yaml", "--json", cwd=photos)
    assert done.returncode == 2
    damaged = json.loads(done.stdout)["damaged"]
    assert [each["record"] for each in damaged] == [9, 9]
    assert "center_crop" in damaged[0]["problem"]


def test_missing_paths_and_files_are_the_users(photos: Path) -> None:
    (photos / "photos").rename(photos / "elsewhere")
    for command in ("peek", "stats", "check"):
        assert str(photos / "photos") in refused("datasets", command, "photos.yaml", cwd=photos)
        assert "data.train.path" in refused("datasets", command, "mlp_mnist")


def tiny(url: str, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, tiny_dataset.__file__, url, "datasets", "fetch", "tiny", *arguments]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )


def fetched(url: str, *arguments: str, cwd: Path) -> dict[str, Any]:
    with tiny(url, *arguments, "--json", cwd=cwd) as process:
        output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors
    report = json.loads(output)
    assert isinstance(report, dict)
    return report


def test_fetch_says_how_to_use_the_files(tmp_path: Path) -> None:
    with serving({"/tiny.bin": tiny_dataset.CONTENT}) as server:
        report = fetched(server.url, "--to", "my files", cwd=tmp_path)
        with tiny(server.url, cwd=tmp_path) as process:
            text, _ = process.communicate(timeout=HANG_S)
    assert (tmp_path / "my files" / "tiny.bin").read_bytes() == tiny_dataset.CONTENT
    assert '  train: {dataset: tiny, path: "my files", shuffle: true}' in report["config"]
    assert report["next"] == "mxrun train digits_lenet 'data.train.path=my files'"
    assert "in a config:" in text
    assert "{dataset: tiny, path: tiny, shuffle: true}" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_fetch_is_continued(tmp_path: Path, number: signal.Signals) -> None:
    answer = Answer(sends=120_000, stalls=True)
    partial = tmp_path / "tiny" / ".tiny.bin.partial"
    with serving({"/tiny.bin": tiny_dataset.CONTENT}, answer) as server:
        with tiny(server.url, cwd=tmp_path) as process:
            assert server.stalled.wait(HANG_S)
            while partial.stat().st_size < 120_000:
                assert process.poll() is None
            process.send_signal(number)
            _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == (75 if number is signal.SIGINT else -number)
        assert ("the same command continues" in errors) == (number is signal.SIGINT)
        assert os.listdir(tmp_path / "tiny") == [partial.name]
        report = fetched(server.url, cwd=tmp_path)
        assert [wanted for _, wanted in server.requests] == ["", "bytes=120000-"]
    assert report["files"][0]["resumed"] == 120_000
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == tiny_dataset.CONTENT


def test_fetch_says_what_the_server_answers(tmp_path: Path) -> None:
    with serving({}) as server:
        text = refused("datasets", "fetch", "mnist", "--from", server.url, cwd=tmp_path)
        assert f"{server.url}/train-images-idx3-ubyte.gz: the server answers 404" in text
    with serving({"/train-images-idx3-ubyte.gz": b"short"}) as server:
        text = refused("datasets", "fetch", "mnist", "--from", server.url, cwd=tmp_path)
        assert "expected: 9,912,422 bytes" in text
    assert "one of mnist, fashion_mnist" in refused("datasets", "fetch", "imagenet")
    assert "neither an address nor" in refused(
        "datasets", "fetch", "mnist", "--from", "no/folder", cwd=tmp_path
    )


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    with serving({}) as server:
        code, shown = on_terminal(
            *("datasets", "fetch", "mnist", "--from", server.url), stream="stderr", cwd=tmp_path
        )
    assert code == 2
    assert "404" in shown
