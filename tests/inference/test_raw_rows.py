"""Rows as people wrote them, read by infer, evaluate, ONNX's metadata and Python as in training."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from doc_pages import blocks_of
from onnx_environment import onnx_python
from training import run_training

import mxrun
from mxrun.base.errors import UserError
from mxrun.commands.convert import convert
from mxrun.commands.init import init
from mxrun.options.convert import ConvertOptions
from mxrun.options.init import InitOptions

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    ("12.03.2021", "1.234,50", "5%", "late and broken parcel, order 1", "yes"),
    ("01.11.2022", "7,25", "17%", "very good, thanks for all, order 2", "no"),
    ("24.12.2023", "-", "0%", "broken again, send it back now", "yes"),
    ("30.06.2021", "99,00", "3%", "good and fast as ever, thanks", "no"),
]


@pytest.fixture
def run(empty_folder: Path) -> Path:
    lines = ["day;price;discount;note;back"]
    for at in range(60):
        *cells, label = ROWS[at % 4]
        cells[0] = f"{1 + at % 28:02}{cells[0][2:]}"
        lines.append(";".join([*cells[:3], f'"{cells[3]}{at}"', label]))
    Path("t.csv").write_text("\n".join(lines) + "\n")
    init(InitOptions(source="t.csv", name="t"))
    run_training("threads=1", "train.epochs=3", config=Path("t.yaml"))
    return Path("runs/t")


def test_files_and_texts_give_the_same_predictions(run):
    model = mxrun.load(run)
    columns = ("day", "price", "discount", "note")
    # Other columns between them, in another order, and no label.
    lines = ["note;x;price;discount;day"]
    lines += [f'"{note}";9;{price};{discount};{day}' for day, price, discount, note, _ in ROWS]
    Path("new.csv").write_text("\n".join(lines) + "\n")
    found = model.predict("new.csv").values
    texts = {name: [row[at] for row in ROWS] for at, name in enumerate(columns)}
    assert np.array_equal(model.predict(texts).values, found)
    assert np.array_equal(model.predict([list(row[:4]) for row in ROWS]).values, found)
    typed = {
        **texts,
        "price": [1234.5, 7.25, None, 99],
        "discount": [0.05, 0.17, 0.0, 0.03],
        "day": np.array(["2021-03-12", "2022-11-01", "2023-12-24", "2021-06-30"], "M8[D]"),
    }
    assert np.allclose(model.predict(typed).values, found, atol=1e-6)
    with pytest.raises(UserError, match=r"record 1: price: not a number\n.*a number\n.*'7\.2\.5'"):
        model.predict({**texts, "price": ["1", "7.2.5", "3", "4"]})
    with pytest.raises(UserError, match=r"record 0: day: not a date\n.*%d\.%m\.%Y"):
        model.predict({**texts, "day": ["2021-03-12", *texts["day"][1:]]})


def test_evaluation_reads_other_tables_in_the_same_form(run):
    model = mxrun.load(run)
    path = Path("t.csv")
    Path("u.csv").write_bytes(path.read_bytes())
    assert model.evaluate("u.csv").metrics == model.evaluate("t.csv").metrics


def test_the_metadata_of_onnx_hold_what_reads_raw_rows(run):
    converted = convert(ConvertOptions(source=str(run), output=Path("t.onnx"))).to_json()
    data = json.loads(converted["metadata"]["mxrun.preprocessing"])["data"]
    cells = {"decimal": ",", "thousands": ".", "percent": True, "units": [], "missing": ["-"]}
    assert data["cells"] == cells
    by_name = {column["name"]: column for column in data["encoding"]}
    assert by_name["day"]["format"] == "%d.%m.%Y"
    assert "broken" in by_name["note"]["words"]


def test_the_lines_of_the_page_on_tables_make_what_the_network_reads(empty_folder):
    (block,) = [
        each
        for each in blocks_of((ROOT / "mxrun/docs/tables.md").read_text())
        if each.file == "serve.py"
    ]
    Path("serve.py").write_text(block.text)
    lines = ["day;price;kind;size;back"]
    for at in range(80):
        kind = ("new", "old", "", "rare")[at % 4 if at < 60 else at % 2]
        price = "" if at % 7 == 0 else f"{1 + at * at}.5"
        lines.append(f"{1 + at % 28:02}.03.2021;{price};{kind};{'SML'[at % 3]};{'yn'[at % 2]}")
    Path("t.csv").write_text("\n".join(lines) + "\n")
    columns = (
        "{day: {date: {format: '%d.%m.%Y'}}, price: {number: {indicator: true, scale: log}}, "
        "kind: {category: {min_count: 20}}, size: {category: {encoding: ordinal}}}"
    )
    init(InitOptions(source="t.csv", name="t", settings=(f"columns={columns}",)))
    run_training("threads=1", "train.epochs=3", config=Path("t.yaml"))
    convert(ConvertOptions(source="runs/t", output=Path("t.onnx")))
    rows = [
        {"day": "04.05.2022", "price": 12.5, "kind": "new", "size": "M"},
        {"day": "04.05.2022", "price": None, "kind": None, "size": None},
        {"day": "01.01.2020", "price": -3, "kind": "unknown", "size": "XL"},
        {"day": "01.01.2020", "kind": "rare", "size": "L"},
    ]
    done = subprocess.run(
        [onnx_python(), "serve.py", "t.onnx"],
        input="\n".join(map(json.dumps, rows)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expected = mxrun.load("runs/t").predict(rows).values
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
