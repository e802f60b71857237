"""Encoding of a table's columns: numbers, categories and dates, learned and applied."""

from __future__ import annotations

import csv
import gzip
import io
import math
import random
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from damage import damage
from passengers import passengers
from refusals import only_problem

from mxrun.base.errors import SourceLocation, UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.tables.cells import CellForm
from mxrun.io.tables.encoding import EncodedNumber, TableEncoding
from mxrun.io.tables.features import FeatureColumn, FeatureTable, word_column
from mxrun.io.tables.forms import CategoryForm, NumberForm
from mxrun.io.tables.learn import learn_encoding

PLACE = SourceLocation("c.yaml", 7, 3)


def learned(text: str, columns: object = "auto", path: Path | None = None, **options: object):
    """Return the data set of a table without labels, encoded by its own records."""
    assert path is not None
    path.write_text(text)
    return opened([str(path)], columns, **options)


def opened(paths: list[str], columns: object = "auto", **options: object) -> Dataset:
    given = {"path": paths, "label": None, "columns": columns, **options}
    request = request_dataset("csv", given, None, {"path": PLACE})
    # Of any width: the network has no input.
    return open_datasets({"it": request}, {})["it"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def rows(dataset: Dataset) -> dict[str, list[float]]:
    assert dataset.encoding is not None
    data = dataset.fields["data"].records
    assert data.dtype == np.float32
    return {name: data[:, at].tolist() for at, name in enumerate(dataset.encoding.inputs)}


def test_numbers_are_standardised_and_gaps_get_the_mean(file):
    found = rows(learned("a,b\n1,5\n,5\n3,5\nNA,5\n", path=file))
    assert found == {"a": [-1, 0, 1, 0], "b": [0, 0, 0, 0]}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"missing": "median"}, [1, 10, 2, 2]),
        ({"missing": 0}, [1, 10, 2, 0]),
        ({"missing": -1.5}, [1, 10, 2, -1.5]),
        ({"missing": "mean"}, [1, 10, 2, 13 / 3]),
    ],
)
def test_what_stands_for_missing_numbers(file, form, expected):
    text = "a\n1\n10\n2\n?\n"
    found = rows(learned(text, {"a": {"number": {**form, "scale": "none"}}}, file))
    assert found["a"] == pytest.approx(expected)
    both = {"a": {"number": {**form, "scale": "none", "indicator": True}}}
    assert rows(learned(text, both, file))["a missing"] == [0, 0, 0, 1]


def test_scales(file):
    text = "a\n-3\n0\n7\n1\n"
    values = np.array([-3, 0, 7, 1.0])
    logs = np.sign(values) * np.log1p(np.abs(values))
    expected = {
        "standard": (values - values.mean()) / values.std(),
        "minmax": (values + 3) / 10,
        "log": (logs - logs.mean()) / logs.std(),
        "none": values,
    }
    for scale, wanted in expected.items():
        found = rows(learned(text, {"a": {"number": {"scale": scale}}}, file))["a"]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_missing_values_are_refused_where_they_stand(file):
    columns = {"a": {"number": {"missing": "error"}}, "b": {"category": {"missing": "error"}}}
    with pytest.raises(UserError) as caught:
        learned("a,b\n1,x\n,y\n3,NA\n,x\n", columns, file)
    found = [str(each) for each in caught.value.diagnostics]
    assert [text.partition("t.csv")[2].partition(": column")[0] for text in found] == [
        ":3:1: byte 8",
        ":5:1: byte 16",
        ":4:2: byte 13",
    ]
    assert all("the value is missing" in text for text in found)


def test_categories_are_one_hot_with_gaps_as_their_own(file):
    found = rows(learned('a,b\nx,1\n"y, z",2\n,3\nx,4\n', path=file))
    assert found["a=x"] == [1, 0, 0, 1]
    assert found["a=y, z"] == [0, 1, 0, 0]
    assert found["a=missing"] == [0, 0, 1, 0]


def test_categories_that_are_numbers(file):
    dataset = learned("a,b\n1,1\n2.0,1\n,2\n10,1\n1.00,2\n", {"a": "category"}, file)
    found = rows(dataset)
    assert [name for name in found if name.startswith("a")] == ["a=1", "a=2", "a=10", "a=missing"]
    assert found["a=1"] == [1, 0, 0, 0, 1]


def test_rare_and_unknown_categories_are_one(file):
    text = "a,b\n" + "x,1\n" * 5 + "y,1\n" * 4 + "z,1\nw,2\n,3\n"
    dataset = learned(text, {"a": {"category": {"min_count": 2}}}, file)
    found = rows(dataset)
    assert [*found] == ["a=x", "a=y", "a=other", "a=missing", "b"]
    assert found["a=other"][-3:] == [1, 1, 0]
    encoding = dataset.encoding
    assert encoding is not None
    made, tally = encoding.encode_array(np.array([["q", 1], ["z", 1]], object), "rows")
    assert made[:, 2].tolist() == [1, 1]
    # A rare one is known.
    assert tally.to_json() == {"a": {"missing": 0, "unknown": 1, "unknown_words": ["q"]}}
    most = learned(text, {"a": {"category": {"missing": "most_frequent"}}}, file)
    assert rows(most)["a=x"][-1] == 1
    assert "a=missing" not in rows(most)


def test_ordinal_categories(file):
    text = "a,b\nlow,1\nhigh,1\nmid,2\n,1\n"
    form = {"encoding": "ordinal", "order": ["low", "mid", "high"]}
    dataset = learned(text, {"a": {"category": form}}, file)
    known = np.array([1, 3, 2])
    expected = (np.array([1, 3, 2, 0]) - known.mean()) / known.std()
    np.testing.assert_allclose(rows(dataset)["a"], expected, rtol=1e-6)
    with pytest.raises(UserError, match="`order` lacks categories") as caught:
        learned(text, {"a": {"category": {**form, "order": ["low", "mid"]}}}, file)
    assert caught.value.diagnostics[0].got == "high"


def test_dates_are_days(file):
    form = {"date": {"scale": "none"}}
    found = rows(learned("a,b\n1970-01-02,1\n2024-02-29T12:00,2\n,3\n", {"a": form}, file))
    assert found["a"][:2] == [1, 19782.5]
    form = {"date": {"scale": "none", "format": "%d.%m.%Y", "missing": 0}}
    found = rows(learned("a,b\n03.01.1970,1\n,2\n", {"a": form}, file))
    assert found["a"] == [2, 0]
    with pytest.raises(UserError, match=r"t\.csv:3:1: column 'a': not a date") as caught:
        learned("a,b\n1970-01-02,1\n31.12.1999,2\n", {"a": "date"}, file)
    assert caught.value.diagnostics[0].got == "'31.12.1999'"
    # A column of many different words that are all dates is one of dates.
    text = "a,b\n" + "".join(f"19{n:02}-01-01,{n}\n" for n in range(70, 99))
    assert [*rows(learned(text, path=file))] == ["a", "b"]


def test_a_stray_word_among_numbers_is_told(file):
    numbers = [f"{n},1\n" for n in range(50)]
    numbers[30] = "3O,1\n"
    with pytest.raises(UserError, match=r"t\.csv:32:1: column 'a': not a number") as caught:
        learned("a,b\n" + "".join(numbers), path=file)
    assert caught.value.diagnostics[0].got == "'3O'"
    # A column that is called a category may hold both.
    numbers = [f"{n % 5},1\n" for n in range(50)]
    numbers[30] = "G,1\n"
    found = rows(learned("a,b\n" + "".join(numbers), {"a": "category"}, file))
    assert [*found] == ["a=0", "a=1", "a=2", "a=3", "a=4", "a=G", "b"]


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e300", '"inf"'])
@pytest.mark.parametrize("share", [1, 2, 40])
def test_numbers_that_no_float_holds_are_told(file, cell, share):
    cells = [cell, *map(str, range(1, share))]
    with pytest.raises(UserError, match=r"t\.csv:2:1: column 'a': not a number"):
        learned("a,b\n" + "".join(f"{each},1\n" for each in cells), path=file)


def test_numbers_with_decimal_commas_are_no_categories(file):
    text = "a;b\n" + "1,5;1\n2;1\n1,5;1\n1.234,5;1\n"
    with pytest.raises(UserError, match=r"t\.csv:2:1: column 'a': not a number") as caught:
        learned(text, path=file)
    assert 'decimal: ","' in caught.value.diagnostics[0].hint
    found = rows(learned(text, {"a": "category"}, path=file))
    assert [*found] == ["a=2", "a=1,5", "a=1.234,5", "b"]


@pytest.mark.full
def test_words_after_many_blocks_of_numbers_make_a_category(file):
    cells = [*(str(n % 7) for n in range(400_000)), *("G" for _ in range(30_000))]
    found = rows(learned("a,b\n" + "".join(f"{cell},1\n" for cell in cells), path=file))
    assert [*found] == [*(f"a={n}" for n in range(7)), "a=G", "b"]
    assert sum(found["a=6"]) == sum(cell == "6" for cell in cells)


def test_columns_are_named_by_pattern_and_number(file):
    text = "x_1,x_2,word,n\n1,2,p,5\n3,4,q,6\n"
    columns = {"*": {"number": {"scale": "none"}}, "word": "ignore", "x_*": "category"}
    assert [*rows(learned(text, columns, file))] == ["x_1=1", "x_1=3", "x_2=2", "x_2=4", "n"]
    bare = text.partition("\n")[2]
    found = rows(learned(bare, {"2": "ignore", "0": "category"}, file))
    assert [*found] == ["column 0=1", "column 0=3", "column 1", "column 3"]
    with pytest.raises(UserError, match="no data column is named 'wrod'") as caught:
        learned(text, {"wrod": "ignore"}, file)
    assert "did you mean 'word'?" in caught.value.diagnostics[0].hint


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": "numbr"}, ("number, category, date, text, ignore", "did you mean 'number'?")),
        ({"a": {"number": {"mising": "mean"}}}, ("'mising'", "did you mean 'missing'?")),
        ({"a": {"number": {"scale": "std"}}}, ("one of standard, minmax, log, none",)),
        ({"a": {"category": {"min_count": 0}}}, ("integer >= 1",)),
        ({"a": {"number": {}, "date": {}}}, ("or {number: {missing: median}}",)),
        ({"a": 3}, ("number, category, date, text, ignore",)),
        ("all", ("auto",)),
    ],
)
def test_wrong_treatments_are_told(file, columns, words):
    found = only_problem(learned, "a,b\n1,2\n", columns, file)
    assert all(word in str(found) for word in words), str(found)


def test_a_column_without_values_is_told(file):
    with pytest.raises(UserError, match="has no value in the training records") as caught:
        learned("a,b,c\n1,,\n2,,NA\n", path=file)
    assert len(caught.value.diagnostics) == 2


def test_a_table_may_lie_in_several_files_and_be_zipped(tmp_path):
    text = passengers(60)
    header, *lines = text.splitlines(True)
    columns = {"name": "ignore", "ticket": "ignore", "cabin": "ignore"}
    (tmp_path / "whole.csv").write_text(text)
    expected = opened([str(tmp_path / "whole.csv")], columns)
    (tmp_path / "a.csv").write_text(header + "".join(lines[:20]))
    with gzip.open(tmp_path / "b.csv.gz", "wt") as zipped:
        zipped.write(header + "".join(lines[20:]))
    found = opened([str(tmp_path / "a.csv"), str(tmp_path / "b.csv.gz")], columns)
    assert found.encoding == expected.encoding
    records = found.fields["data"].records
    assert np.array_equal(records, expected.fields["data"].records)
    # In the second file the columns may be in another order, and a cell is named by its file.
    (tmp_path / "c.csv").write_text("b,a\n1,2\n3,x\n")
    (tmp_path / "d.csv").write_text("a,b\n5,6\n")
    paths = [str(tmp_path / name) for name in ("d.csv", "c.csv")]
    with pytest.raises(UserError, match=r"c\.csv:3:2: byte 10: column 'a'"):
        opened(paths, {"a": "number"})
    content = (tmp_path / "b.csv.gz").read_bytes()
    for cut in range(0, len(content), 7):
        (tmp_path / "b.csv.gz").write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"b\.csv\.gz"):
            opened([str(tmp_path / "a.csv"), str(tmp_path / "b.csv.gz")], columns)


@pytest.mark.full
def test_damaged_tables_give_an_error_or_what_they_hold(file):
    text = passengers(60).encode()
    columns = {"name": "ignore", "ticket": "ignore", "cabin": "ignore"}
    starts = [at for at, byte in enumerate(text, 1) if byte == 10]
    cuts = sorted({at + move for at in starts for move in (-1, 0, 1)})
    draw = random.Random(3)
    contents = [text[:cut] for cut in cuts if cut <= len(text)]
    contents += [damage(text, draw) for _ in range(200)]
    refused = []
    for content in contents:
        file.write_bytes(content)
        try:
            found = opened([str(file)], columns)
        except UserError as error:
            refused.append(str(error))
        else:
            lines = csv.reader(io.StringIO(content.decode(), newline=""))
            assert len(found) == len([cells for cells in lines if any(cells)]) - 1
            assert np.isfinite(found.fields["data"].records).all()
    assert all(str(file) in text or "column" in text for text in refused)
    assert 20 < len(refused) < len(contents) - 100


def test_any_reader_can_make_a_table():
    table = FeatureTable(
        (
            FeatureColumn("size", 0, NumberForm(), np.array([1.0, 3.0, np.nan])),
            word_column("kind", 1, CategoryForm(), ["b", None, "a"]),
        )
    )
    encoding = learn_encoding(table.part(np.array([0, 1])))
    found, tally = encoding.encode(table, "table")
    assert encoding.inputs == ("size", "kind=b", "kind=missing")
    assert found.tolist() == [[-1, 1, 0], [1, 0, 1], [0, 0, 0]]
    assert tally.columns["kind"].words == ["a"]
    # As a checkpoint's manifest holds it.
    assert TableEncoding.model_validate_json(encoding.model_dump_json()) == encoding


def read_as_number(*values: object) -> float:
    """Return the first number of a column whose texts have commas before decimals."""
    amount = EncodedNumber(
        name="amount",
        number=0,
        kind="number",
        fill=None,
        indicator=False,
        log=False,
        center=0.0,
        spread=1.0,
    )
    encoding = TableEncoding(columns=(amount,), cells=CellForm(decimal=",", thousands="."))
    kind = object if len(values) == 1 else np.float64
    rows, _ = encoding.encode_array(np.array([values], kind).T, "rows")
    return float(rows[0, 0])


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1.234, 1.234),
        (np.float32(2.5), 2.5),
        (np.int64(19000), 19000),
        (Decimal("1234.5"), 1234.5),
        ("1.234,5", 1234.5),
        ("1.234", 1234),
    ],
)
def test_numbers_are_not_read_as_their_texts(value: object, number: float) -> None:
    """Only a text has the form of the table's cells."""
    assert read_as_number(value) == pytest.approx(number)


@pytest.mark.parametrize("value", [math.inf, np.float64(-math.inf), Decimal("Infinity"), 10**400])
def test_numbers_without_end_are_refused(value: object) -> None:
    with pytest.raises(UserError, match="record 0: "):
        read_as_number(value)
    with pytest.raises(UserError, match="record 1: amount: not a finite number"):
        read_as_number(1.0, math.inf)
