"""Cells of tables: how numbers are written, missing values, line ends within cells."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.tables import rows
from mxrun.io.tables.cells import CellForm

PLACE = SourceLocation("c.yaml", 7, 3)


def opened(path: Path, content: str, inputs: dict[str, TensorSpec], **options: object) -> Dataset:
    path.write_text(content, newline="")
    request = request_dataset("csv", {"path": str(path), **options}, None, {"path": PLACE})
    return open_datasets({"it": request}, inputs)["it"]


@pytest.mark.parametrize(
    ("form", "numbers", "words"),
    [
        (
            {"decimal": ","},
            {"1,5": 1.5, "-,5": -0.5, "3": 3, "1,5e3": 1500, '"2,25"': 2.25},
            ["1.5", "1,2,3", "", "x", "1 5"],
        ),
        (
            {"decimal": ",", "thousands": "."},
            {"1.234,5": 1234.5, "12.345.678": 12345678, "1234,5": 1234.5},
            ["1.23", "1.2345", ".123", "1,234.5"],
        ),
        ({"thousands": ","}, {"1,234": 1234, "1,234.5": 1234.5, "12": 12}, ["12,34", ",123"]),
        ({"thousands": " "}, {"1 234": 1234, "1\u202f234": 1234, "1\xa0234.5": 1234.5}, ["1  234"]),
        ({"thousands": "'"}, {"1'234": 1234, "1\u2019234": 1234}, ["1''234"]),
        ({"percent": True}, {"17%": 0.17, "2.5 %": 0.025, "3": 3, "-1%": -0.01}, ["%", "17%%"]),
        (
            {"units": ("€", "km")},
            {"€5": 5, "5 €": 5, "-€5": -5, "€ -5": -5, "3.5 km": 3.5, "7": 7},
            ["$5", "km", "€"],
        ),
    ],
)
def test_numbers_are_read_as_the_form_says(form, numbers, words):
    cells = CellForm(**form)
    assert {text: cells.number(text.encode()) for text in numbers} == numbers
    assert all(math.isnan(cells.number(word.encode())) for word in words)


def test_missing_values_are_those_of_programs_and_those_declared():
    usual, declared = CellForm(), CellForm(missing=("-", "Unknown"))
    for gap in ("", "NA", "n/a", "#N/A", "<NA>", "NaN", "null", "None", "?", '""'):
        assert usual.is_gap(gap.encode()), gap
        assert declared.is_gap(gap.encode()), gap
    for gap in ("-", " - ", '"-"', "unknown"):
        assert declared.is_gap(gap.encode())
        assert not usual.is_gap(gap.encode())
    assert not declared.is_gap(b"--")
    assert not usual.is_gap(b'"NA"')


def test_the_same_sign_cannot_mean_both(tmp_path):
    with pytest.raises(UserError, match="another sign between thousands than before decimals"):
        request_dataset("csv", {"path": "t.csv", "decimal": ",", "thousands": ","}, None)


def test_options_give_the_numbers_of_a_plain_table(tmp_path):
    draws = random.Random(4)
    values = [[draws.randrange(-9_999_999, 9_999_999) / 100 for _ in range(3)] for _ in range(300)]
    plain = "\n".join(";".join(f"{each:.2f}" for each in row) for row in values)
    german = plain and "\n".join(
        ";".join(
            f"{each:,.2f}".replace(",", "x").replace(".", ",").replace("x", ".") for each in row
        )
        for row in values
    )
    inputs = {"data": TensorSpec((2,)), "label": TensorSpec(())}
    expected = opened(tmp_path / "a.csv", plain, inputs)
    found = opened(tmp_path / "b.csv", german, inputs, decimal=",", thousands=".")
    for name in ("data", "label"):
        assert np.array_equal(found.fields[name].records, expected.fields[name].records)


def test_a_wrong_number_is_told_with_its_place(tmp_path):
    text = "a;b\n1,5;1\n2.5;0\n"
    with pytest.raises(UserError, match=r"t\.csv:3:1: byte 10: column 'a': not a number"):
        opened(tmp_path / "t.csv", text, {"data": TensorSpec((1,))}, label="b", decimal=",")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cells_in_quotes_may_hold_line_ends(tmp_path, monkeypatch, end):
    # Blocks smaller than rows: a cell in quotes is in several of them.
    monkeypatch.setattr(rows, "_BLOCK", 7)
    text = end.join(["note,a,kind", '"two', "", 'lines, ""too""",1,x', "b,2,y", '5" pipe,3,x', ""])
    dataset = opened(
        tmp_path / "t.csv",
        text,
        {"data": TensorSpec((4,)), "label": TensorSpec((), "int32")},
        columns={"note": "category", "a": {"number": {"scale": "none"}}},
    )
    assert dataset.encoding is not None
    words = [name for name in dataset.encoding.inputs if name.startswith("note")]
    assert words == ['note=5" pipe', "note=b", f'note=two{end}{end}lines, "too"']
    assert dataset.fields["data"].records[:, 3].tolist() == [1, 2, 3]
    # The line of a row is that of its beginning.
    with pytest.raises(UserError, match=r"t\.csv:5:2: byte \d+: column 'a': not a number"):
        opened(tmp_path / "t.csv", text.replace("b,2", "b,z"), {}, columns={"a": "number"})


def test_several_label_columns(tmp_path):
    inputs = {"data": TensorSpec((1,)), "label": TensorSpec((2,))}
    text = "a,red,round\n1,0,1\n2,1,1\n3,0,0\n"
    dataset = opened(tmp_path / "t.csv", text, inputs, label=["red", "round"])
    assert dataset.fields["label"].records.tolist() == [[0, 1], [1, 1], [0, 0]]
    assert dataset.classes == ("red", "round")
    words = text.replace("0", "False").replace("1,", "True,").replace(",1\n", ",true\n")
    words = words.replace("\nTrue,", "\n1,")
    dataset = opened(tmp_path / "t.csv", words, inputs, label=["red", "round"])
    assert dataset.fields["label"].records.tolist() == [[0, 1], [1, 1], [0, 0]]
    numbers = "a,x,y\n1,0.5,10\n2,7,-1\n"
    dataset = opened(tmp_path / "t.csv", numbers, inputs, label=[1, 2])
    assert dataset.fields["label"].records.tolist() == [[0.5, 10], [7, -1]]
    assert dataset.classes == ()
    with pytest.raises(UserError, match=r"t\.csv:2:3: byte \d+: column 'round': not a number"):
        opened(tmp_path / "t.csv", text.replace("0,1", "0,maybe"), inputs, label=["red", "round"])


def test_several_classes_in_a_label(tmp_path):
    inputs = {"data": TensorSpec((1,)), "label": TensorSpec((3,))}
    text = "a,tags\n1,red|round\n2,\n3,small | red\n"
    dataset = opened(tmp_path / "t.csv", text, inputs, separator="|")
    assert dataset.classes == ("red", "round", "small")
    assert dataset.fields["label"].records.tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 1]]
    order = ["small", "round", "red"]
    dataset = opened(tmp_path / "t.csv", text, inputs, separator="|", classes=order)
    assert dataset.fields["label"].records.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 1]]
    with pytest.raises(UserError, match=r"t\.csv:2:2: the class is not known\n.*'round'|round"):
        opened(tmp_path / "t.csv", text, inputs, separator="|", classes=["red", "small", "x"])


def test_classes_that_are_numbers_have_names(tmp_path):
    inputs = {"data": TensorSpec((1,)), "label": TensorSpec((), "int32")}
    text = "a,y\n1,10\n2,-1\n3,10.0\n"
    dataset = opened(tmp_path / "t.csv", text, inputs, classes=[-1, 10])
    assert dataset.fields["label"].records.tolist() == [1, 0, 1]
    assert dataset.classes == ("-1", "10")
    with pytest.raises(UserError, match=r"t\.csv:3:2: byte 11: column 'y': the label is missing"):
        opened(tmp_path / "t.csv", text.replace("-1", ""), inputs, classes=[-1, 10])


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("sep", "delimiter"),
        ("usecols", "data"),
        ("na_values", "missing"),
        ("parse_dates", "columns"),
        ("target", "label"),
        ("class_names", "classes"),
        ("index_col", "columns"),
        ("currency", "units"),
    ],
)
def test_names_of_pandas_and_scikit_learn_are_understood(word, key):
    with pytest.raises(UserError) as caught:
        request_dataset("csv", {"path": "t.csv", word: "x"}, None)
    assert f"mxrun calls it {key}" in caught.value.diagnostics[0].hint


def test_treatments_are_understood_by_the_names_of_scikit_learn():
    for name, form in (("StandardScaler", "number"), ("OneHotEncoder", "category")):
        with pytest.raises(UserError) as caught:
            request_dataset("csv", {"path": "t.csv", "columns": {"a": name}}, None)
        assert f"mxrun calls it {form}" in caught.value.diagnostics[0].hint
    wrong = {"path": "t.csv", "columns": {"a": {"number": {"impute": "median"}}}}
    with pytest.raises(UserError, match="impute") as caught:
        request_dataset("csv", wrong, None)
    assert "mxrun calls it missing" in caught.value.diagnostics[0].hint
