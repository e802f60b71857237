"""Names of classes and files that are not UTF-8: their bytes are spelled out wherever they go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from commands import mxrun, result, succeeded
from layer_configs import classifier, config_text
from PIL import Image
from training import run_training

from mxrun.train.checkpoint import load_checkpoint

CONFIG = config_text(
    classifier(2),
    settings="threads: 1\n",
    inputs="{data: [1, 4, 4], label: []}",
    data="data: {batch_size: 2, train: {dataset: image_folder, path: images, split: all}}\n",
    train="train: {epochs: 2, optimizer: {sgd: {lr: 0.1}}}\n",
)
FOLDER = b"images/caf\xe9"
SHOWN = "images/caf\\xe9/0\\xff.png"


def test_names_that_are_no_utf8_are_saved_and_shown_escaped(empty_folder: Path) -> None:
    for folder in (FOLDER, b"images/tea"):
        os.makedirs(folder)
        for number in range(2):
            with open(folder + b"/%d\xff.png" % number, "wb") as file:
                pixels = np.full((4, 4), 100 * number + len(folder), np.uint8)
                Image.fromarray(pixels).save(file, "PNG")
    Path("net.yaml").write_text(CONFIG)
    run_training()
    (newest,) = Path("runs/net").glob("checkpoint-4")
    assert load_checkpoint(newest).manifest.classes == ("caf\\xe9", "tea")
    # The encoding of UTF-8 terminals: bytes that are not text cannot be written unchanged.
    strict = {"PYTHONIOENCODING": "utf-8:strict"}
    words = ("infer", "runs/net", os.fsdecode(FOLDER), "--top", "2")
    done = succeeded(mxrun(*words, cwd=empty_folder, environment=strict))
    assert SHOWN in done.stdout
    assert " caf\\xe9 " in done.stdout
    shown = result(*words, cwd=empty_folder, environment=strict)["results"]
    assert [row["input"] for row in shown] == [SHOWN, SHOWN.replace("0", "1")]
    for form in ("jsonl", "csv"):
        done = succeeded(mxrun(*words, "--output", form, cwd=empty_folder))
        # What JSON holds are characters that UTF-8 has: other programs refuse half of a pair.
        values = [json.loads(line)["input"] for line in done.stdout.splitlines() if form == "jsonl"]
        assert all(value.encode() for value in values)
        assert done.stdout.count(SHOWN.replace("\\", "\\\\") if form == "jsonl" else SHOWN) == 1
    unnamed = os.fsdecode(b"no\xe9")
    Path(unnamed).mkdir()
    (Path(unnamed) / "net.yaml").write_text(CONFIG)
    message = mxrun("train", f"{unnamed}/net.yaml", cwd=empty_folder).stderr
    assert "bytes that are not UTF-8: rename the file or the folder" in message
    failed = mxrun("infer", "runs/net", os.fsdecode(b"no\xe9"), "--json", cwd=empty_folder)
    assert "no\\xe9" in json.loads(failed.stdout)["error"]["message"]
