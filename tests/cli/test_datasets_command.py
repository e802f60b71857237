"""`mxrun datasets`: its output, files and errors, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_dataset
from commands import HANG_S, mxrun, on_terminal, refused, result, succeeded
from file_server import Answer, serving
from photos import damage, write_photos
from PIL import Image


def test_it_lists_and_describes_data_sets() -> None:
    assert "fashion_mnist" in succeeded(mxrun("datasets", "list")).stdout
    text = succeeded(mxrun("datasets", "describe", "digits")).stdout
    assert "CC BY 4.0" in text
    assert "train, test, all" in text


def test_unknown_subcommands_are_answered_once() -> None:
    done = mxrun("datasets", "fech", "mnist", "--json")
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert "Did you mean 'fetch'?" in json.loads(line)["error"]["message"]
    assert "datasets fetch" in mxrun("download", "mnist").stderr


def test_peek_writes_a_sheet(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    report = result("datasets", "peek", "photos.yaml", "--count", "6", cwd=folder)
    assert report["files"] == {"data": "photos_train.png"}
    with Image.open(folder / "photos_train.png") as sheet:
        assert sheet.format == "PNG"
    arguments = ("peek", "photos.yaml", "--split", "eval", "--raw", "--to", "no/folder.png")
    assert "no folder" in refused("datasets", *arguments, cwd=folder)


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


TEXT = (
    "name: t\n"
    "network:\n"
    "  inputs: {data: [8], label: [8]}\n"
    "  layers:\n"
    "    - Embedding: {input_dim: 62, output_dim: 4}\n"
    "    - FullyConnected: {num_hidden: 62, flatten: false}\n"
    "    - SoftmaxOutput: {label: label, preserve_shape: true}\n"
    "data: {batch_size: 2, train: {dataset: shakespeare}}\n"
    "train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}\n"
)


def test_texts_are_shown_and_their_tokens_counted(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TEXT)
    text = succeeded(mxrun("datasets", "peek", "t.yaml", "--count", "3", cwd=tmp_path)).stdout
    assert "1   tizen:↵B" in text
    report = result("datasets", "peek", "t.yaml", "--count", "1", cwd=tmp_path)
    (record,) = report["records"]
    assert record["texts"] == {"data": "First Ci", "label": "irst Cit"}
    assert len(record["inputs"]["data"]) == 8
    found = result("datasets", "stats", "t.yaml", cwd=tmp_path)["sections"]["train"]
    assert found["fields"] == {}
    tokens = found["texts"]["data"]
    assert (tokens["kind"], tokens["vocabulary"], tokens["unknown"]) == ("characters", 62, None)
    assert tokens["tokens"] == 8 * found["records"]
    assert tokens["frequent"][0][0] == " "
    assert 3.2 < tokens["entropy"] < 3.4
    text = succeeded(mxrun("datasets", "stats", "t.yaml", cwd=tmp_path)).stdout
    assert "vocabulary of 62 (characters)" in text
    assert "normalize" not in text
    assert "all can be read" in succeeded(mxrun("datasets", "check", "t.yaml", cwd=tmp_path)).stdout


def test_padding_of_texts_is_neither_shown_nor_counted() -> None:
    report = result("datasets", "peek", "text_classifier", "--count", "1")
    (record,) = report["records"]
    assert "<pad>" not in record["texts"]["data"]
    assert record["label"] in ("Coriolanus", "Romeo and Juliet", "The Taming of the Shrew")
    found = result("datasets", "stats", "text_classifier")["sections"]["eval"]
    assert found["texts"]["data"]["unknown"] > 0
    assert "<pad>" not in [token for token, _ in found["texts"]["data"]["frequent"]]


def test_stats_end_with_a_transform() -> None:
    text = succeeded(mxrun("datasets", "stats", "digits_lenet")).stdout
    assert "- normalize: {mean: 0.3058, std: 0.3764}" in text


def test_files_that_are_left_out_are_told(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    (folder / "photos" / "red" / "a.heic").write_bytes(b"")
    note = "photos: images of other formats are left out: red/a.heic"
    for arguments in (
        ("datasets", "check", "photos.yaml"),
        ("datasets", "stats", "photos.yaml"),
        ("pack", "photos", "photos.rec"),
    ):
        assert succeeded(mxrun(*arguments, cwd=folder)).stderr.count(note) == 1


def test_check_ends_with_2_if_records_are_damaged(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    whole = succeeded(mxrun("datasets", "check", "photos.yaml", cwd=folder))
    assert "all can be read" in whole.stdout
    damage(folder)
    done = mxrun("datasets", "check", "photos.yaml", cwd=folder)
    assert done.returncode == 2
    assert str(folder / "photos/red/3.png") in done.stdout
    assert "data.train.path" in refused("datasets", "check", "mlp_mnist")


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
