"""`mxrun infer`: files and streams as input; tables, lines and arrays as output."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import MXRUN, mxrun, refused, result, succeeded
from PIL import Image

RUN = "runs/digits_lenet"


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with a trained run, and digits as files."""
    folder = tmp_path_factory.mktemp("work")
    result("train", "digits_lenet", "train.epochs=2", cwd=folder)
    random = np.random.default_rng(0)
    digits = random.random((20, 1, 8, 8), np.float32)
    np.save(folder / "digits.npy", digits)
    np.savetxt(folder / "digits.csv", digits.reshape(20, 64), delimiter=",")
    (folder / "images").mkdir()
    for number in range(3):
        pixels = np.round(digits[number, 0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
    return folder


def infer_input(work: Path, content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command with content on standard input."""
    return subprocess.run(
        [*MXRUN, "infer", *arguments], input=content, capture_output=True, cwd=work, check=False
    )


def test_a_table_says_file_class_and_probability(work):
    done = succeeded(mxrun("infer", RUN, "images", cwd=work))
    assert [f"images/{number}.png" in done.stdout for number in range(4)] == [True] * 3 + [False]
    assert "probability" in done.stdout
    assert "checkpoint-46" in done.stderr
    assert "3 records, " in done.stderr
    one = mxrun("infer", RUN, "images/1.png", "--top", "3", cwd=work)
    assert one.stdout.count("0.") == 3
    features = mxrun("infer", RUN, "digits.npy", "--outputs", "fc1", cwd=work)
    assert "... (64)" in features.stdout


def test_json_lines_and_columns_say_the_same(work):
    whole = result("infer", RUN, "digits.npy", "--top", "2", cwd=work)
    assert (whole["records"], whole["step"], whole["metrics"]) == (20, 46, None)
    lines = mxrun("infer", RUN, "digits.npy", "--top", "2", "--output", "jsonl", cwd=work)
    assert [json.loads(line) for line in lines.stdout.splitlines()] == whole["results"]
    table = mxrun("infer", RUN, "digits.npy", "--top", "2", "--output", "csv", cwd=work)
    rows = list(csv.DictReader(io.StringIO(table.stdout)))
    for row, expected in zip(rows, whole["results"], strict=True):
        assert (row["input"], int(row["record"])) == (expected["input"], expected["record"])
        for rank, each in enumerate(expected["top"], start=1):
            assert (int(row[f"class_{rank}"]), row[f"name_{rank}"]) == (each["class"], each["name"])
            assert float(row[f"probability_{rank}"]) == each["probability"]


def test_a_split_is_measured(work):
    whole = result("infer", RUN, "--split", "test", "--batch", "50", cwd=work)
    assert whole["batch_size"] == 50
    assert len(whole["results"]) == whole["records"] == 359
    hits = [row["top"][0]["class"] == row["label"] for row in whole["results"]]
    assert whole["metrics"]["accuracy"] == pytest.approx(np.mean(hits))
    line = mxrun("infer", RUN, "--split", "eval", "--output", "csv", cwd=work).stderr
    assert f"accuracy {whole['metrics']['accuracy']:.4f}" in line


def test_standard_input_is_recognised_by_its_first_bytes(work):
    expected = result("infer", RUN, "digits.npy", cwd=work)["results"]
    for file in ("digits.npy", "digits.csv", "images/0.png"):
        done = succeeded(
            infer_input(work, (work / file).read_bytes(), RUN, "-", "--output", "jsonl")
        )
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(rows) == (1 if file.endswith("png") else 20)
        assert {row["input"] for row in rows} == {"<standard input>"}
        for row, other in zip(rows, expected, strict=False):
            assert row["top"][0]["class"] == other["top"][0]["class"]
    nothing = infer_input(work, b"", RUN, "-")
    assert nothing.returncode == 2
    assert b"<standard input>: holds no records" in nothing.stderr
    assert b"got: an empty file" in nothing.stderr


def test_arrays_go_to_files_and_pipes(work, tmp_path):
    arguments = ("infer", RUN, "digits.npy", "--outputs")
    to = str(tmp_path / "features.npy")
    written = mxrun(*arguments, "relu1", "--to", to, cwd=work)
    assert written.stdout == ""
    assert written.stderr.endswith(f"mxrun: wrote {to}\n")
    features = np.load(to)
    assert (features.shape, features.dtype) == ((20, 16, 8, 8), np.float32)
    piped = subprocess.run(
        [*MXRUN, *arguments, "relu1", "--output", "npy"], capture_output=True, cwd=work, check=True
    )
    assert piped.stdout == Path(to).read_bytes()
    several = str(tmp_path / "features.npz")
    mxrun(*arguments, "relu1, fc1", "--to", several, cwd=work)
    with np.load(several) as archive:
        assert {name: archive[name].shape for name in archive} == {
            "relu1": (20, 16, 8, 8),
            "fc1": (20, 64),
        }
        assert archive["relu1"].tobytes() == features.tobytes()
    said = refused(*arguments, "relu1,fc1", "--to", to, cwd=work)
    assert f"write --to {Path(to).with_suffix('.npz')}" in said


def test_a_bad_file_is_named_and_leaves_no_half_result(work, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes((work / "images" / "0.png").read_bytes()[:60])
    to = tmp_path / "results.jsonl"
    arguments = ("infer", RUN, "images", str(broken), "--batch", "1", "--to", str(to))
    message = refused(*arguments, cwd=work)
    assert f"{broken}: byte 60: cannot be decoded as an image" in message
    assert list(tmp_path.iterdir()) == [broken]
    to.write_text("of an earlier run\n")
    refused(*arguments, cwd=work)
    assert to.read_text() == "of an earlier run\n"
    missing = refused("infer", RUN, "nothing.png", "images", "nowhere", cwd=work)
    assert "nothing.png: there is no such file" in missing
    assert "nowhere: there is no such file" in missing


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to run on: name files, folders or -"),
        (("digits.npy", "--split", "eval"), "both say what to run on"),
        (("digits.npy", "--json", "--output", "csv"), "--json prints everything"),
        (("digits.npy", "--to", "results.txt"), "does not name a format: use one of .jsonl"),
        (("digits.npy", "--to", "results.npy", "--top", "2"), "leave out --top"),
        (("--split", "tests"), "did you mean 'test'?"),
        (("digits.npy", "--outputs", "conv1", "--top", "2"), "one number for each class"),
        (("digits.npy", "--to", "digits.npy/x.csv"), "cannot write digits.npy/"),
        (("digits.npy", "--output", "csv", "--to", "-"), "cannot write -: - is not a file"),
        (("digits.npy", "--threads", "1025"), "less than or equal to 1024"),
        (("digits.npy", "-", "-"), "standard input can be read once only"),
    ],
)
def test_what_does_not_go_together(work, arguments, said):
    assert said in " ".join(refused("infer", RUN, *arguments, cwd=work).split())


def test_a_reader_that_goes_away_needs_no_word(work):
    command = [*MXRUN, "infer", RUN, "--split", "all", "--output", "jsonl", "--batch", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    message = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert b"Traceback" not in message


def test_what_is_written_to_a_device_leaves_the_device_alone(work):
    succeeded(mxrun("infer", RUN, "digits.npy", "--output", "csv", "--to", os.devnull, cwd=work))
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("form", ["jsonl", "csv", "npy", "table"])
def test_only_tables_load_rich(form, work):
    script = (
        "import atexit, sys; from mxrun.cli.main import run;"
        "atexit.register(lambda: sys.stderr.write(f\"{'rich' in sys.modules}\")); run()"
    )
    arguments = ("infer", RUN, "digits.npy", "--output", form)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=work, capture_output=True, check=True
    )
    assert done.stderr.splitlines()[-1] == str(form == "table").encode()


LITTLE_MEMORY = """\
import resource, sys
from pathlib import Path
from mxrun.cli.main import run
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (768 << 20),) * 2)
sys.exit(run())
"""


def test_memory_that_is_not_to_be_had_is_one_line(work):
    """Standard input may hold 4 GiB, and that buffer is allocated at once."""
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_MEMORY, "infer", RUN, "-"],
        input="",
        capture_output=True,
        text=True,
        cwd=work,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "mxrun: out of memory: " in done.stderr
    assert "Traceback" not in done.stderr
