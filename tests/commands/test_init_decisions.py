"""`init` says what it decided of a table: each column left out, each choice that may be doubted."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import numpy as np
import pytest
from training import run_training

import mxrun
from mxrun.base.errors import UserError
from mxrun.commands.init import InitResult, init
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.options.init import InitOptions
from mxrun.preparation.planning import load


@pytest.fixture(autouse=True)
def folder(empty_folder: Path) -> Path:
    return empty_folder


def surveyed(text: str, name: str = "t.csv", **options: object) -> InitResult:
    Path(name).write_text(text)
    return init(InitOptions(source=name, overwrite=True, **options))  # type: ignore[arg-type]


def table(header: str, *columns: object, rows: int = 60, delimiter: str = ",") -> str:
    """Return a table: a column is a list whose entries come again and again."""
    lines = [
        delimiter.join(str(column[row % len(column)]) for column in columns)  # type: ignore[index, arg-type]
        for row in range(rows)
    ]
    return "\n".join([*([header] if header else []), *lines]) + "\n"


def config(result: InitResult) -> str:
    return " ".join(result.file.read_text().split())


def opened(result: InitResult) -> Dataset:
    built = load(result.file)
    return open_datasets(built.data, built.model.records)["train"]


def prices(count: int = 61) -> list[str]:
    draws = random.Random(0)
    return [
        f"{draws.uniform(1, 9999):,.2f}".replace(",", "x").replace(".", ",").replace("x", ".")
        for _ in range(count)
    ]


def test_dates_are_no_label_unless_they_are_named() -> None:
    days = [f"2024-01-{day:02}" for day in range(1, 11)]
    text = table("size,kind,day", range(60), ["a", "b"], days)
    result = surveyed(text)
    assert result.survey.options["label"] == "kind"
    assert any("the last column 'day', which holds dates" in each for each in result.survey.doubts)
    assert surveyed(text, label="day").survey.options["label"] == "day"


def test_a_german_export_is_read_with_its_last_column_as_label():
    menge = [str(each) for each in range(1, 40)]
    text = table("Menge;Ausbildung;Preis", menge, ["Lehre", "Abitur"], prices(), delimiter=";")
    result = surveyed(text)
    assert "label: 'Preis', numbers to predict" in result.survey.facts[1]
    (said,) = result.survey.doubts
    assert said == "'1.234,50' in 'Preis' is read as 1234.5 (decimal: \",\", thousands: \".\")" or (
        "in 'Preis' is read as" in said and said.endswith('(decimal: ",", thousands: ".")')
    )
    assert 'decimal: "," thousands: "."' in config(result)
    assert not result.survey.left_out
    evaluation = run_training("threads=1", "train.epochs=2", config=result.file)["eval"]
    assert isinstance(evaluation, dict)
    # The labels are those of the file, not a thousandth.
    labels = opened(result).fields["label"].records
    assert labels.max() > 9000


@pytest.mark.parametrize(
    ("cells", "keys", "said"),
    [
        (["12,50", "3,25", "0,75", "8,10"], 'decimal: ","', "'12,50' in 'x' is read as 12.5"),
        (["1,234", "12,345", "7"], 'thousands: ","', "it is 1.234 with decimal"),
        (["1 234,5", "12", "7,5"], 'decimal: "," thousands: " "', "is read as 1234.5"),
        (["17%", "3%", "25%"], "percent: true", "'17%' in 'x' is read as 0.17"),
        (["$5", "$1,206.50", "$7"], 'thousands: "," units: ["$"]', "'$5' in 'x' is read as 5"),
        (["5 kg", "6 kg", "12 kg"], "units: [kg]", "'5 kg' in 'x' is read as 5"),
        (["1", "-", "3", "4", "5"], 'missing: ["-"]', "'-' in 'x' means a missing value"),
        (["1.5", "unknown", "3"], "missing: [unknown]", "'unknown' in 'x' means a missing value"),
    ],
)
def test_the_form_of_numbers_is_found_and_said(cells, keys, said):
    result = surveyed(table("x;b;kind", cells, [1, 2, 4], ["p", "q"], delimiter=";"))
    assert any(said in each for each in result.survey.doubts), result.survey.doubts
    assert keys in config(result)
    assert "x: number" in config(result) or "x: {number" in config(result)
    assert opened(result).encoding is not None


@pytest.mark.parametrize("gap", ["#N/A", "n/a", "<NA>", "NULL"])
def test_gaps_of_programs_leave_a_column_numbers(gap):
    result = surveyed(table("age,b,kind", [1, 2, gap, 4, 7], [1, 2], ["p", "q"]))
    assert "age: {number: {indicator: true}} # 12 of 60 missing, 1 to 7" in config(result)


@pytest.mark.parametrize(
    ("days", "form", "said"),
    [
        (["03/11/2021", "25/12/2020", "01/02/2022"], "%d/%m/%Y", ""),
        (["12/25/2020", "01/31/2022"], "%m/%d/%Y", ""),
        (["03/11/2021", "05/12/2020"], "%d/%m/%Y", "{date: {format: '%m/%d/%Y'}}"),
        (["31.12.2020 14:30", "01.02.2022 08:05"], "%d.%m.%Y %H:%M", ""),
        (['"Jan 31, 2020"', '"Feb 1, 2022"'], "%b %d, %Y", ""),
        (["20200131", "20221224", "20210506"], "%Y%m%d", "columns: {day: number}"),
    ],
)
def test_dates_are_found_with_their_form(days, form, said):
    draws = random.Random(1)
    rows = table("day,a,kind", days, [draws.random() for _ in range(60)], ["p", "q"], rows=6)
    result = surveyed(rows)
    assert f'date: {{format: "{form}"}}' in config(result), config(result)
    (doubt, *_) = result.survey.doubts
    assert f"dates of the form {form}" in doubt
    assert said.replace("'", '"') in doubt.replace("'", '"')
    assert opened(result).encoding is not None


@pytest.mark.parametrize("values", [[-1, 1], [10, 20, 30], [1, 2, 3]])
def test_numbers_of_classes_are_classes(values):
    cells = [f"0.{at}" for at in range(1, 60)]
    result = surveyed(table("a,label", cells, values))
    assert result.survey.classes == tuple(map(str, values))
    assert f"classes: {values}" in config(result)
    assert any("`--task regression`" in each for each in result.survey.doubts)
    dataset = opened(result)
    assert dataset.classes == tuple(map(str, values))
    assert set(dataset.fields["label"].records.tolist()) == set(range(len(values)))
    numbers = surveyed(table("a,label", cells, values), task="regression")
    assert numbers.survey.target is not None
    assert any("`--task classification`" in each for each in numbers.survey.doubts)


def test_codes_that_begin_with_0_stay_apart():
    cells = [f"0.{at}" for at in range(1, 60)]
    result = surveyed(table("code,b,kind", ["007", "7"], cells, ["x", "y", "x"]))
    assert any("begin with 0" in each for each in result.survey.doubts)
    assert "code: category # 007 30, 7 30" in config(result)
    encoding = opened(result).encoding
    assert encoding is not None
    assert encoding.inputs[:2] == ("code=7", "code=007") or encoding.inputs[:2] == (
        "code=007",
        "code=7",
    )
    many = table("code,b,kind", [f"0{at}" for at in range(59)], cells, ["x", "y", "x"])
    (line,) = surveyed(many).survey.left_out
    assert "'code': codes that begin with 0 (59 different)" in line


def test_labelled_lines_in_a_tsv_are_texts():
    lines = [f"{('ham', 'spam')[at % 2]}\tsome words of text number {at}" for at in range(60)]
    result = surveyed("\n".join(lines), "t.tsv")
    assert (result.survey.dataset, result.survey.classes) == ("text_lines", ("ham", "spam"))
    assert any("`--as table`" in each for each in result.survey.doubts)
    as_table = surveyed("\n".join(lines), "t.tsv", kind="table", label="0")
    assert as_table.survey.dataset == "csv"
    assert as_table.survey.classes == ("ham", "spam")


@pytest.mark.parametrize("first", ["2018,2019,2020", "0,1,2", "100234,100871,7"])
def test_a_header_of_numbers_is_said_and_can_be_declared(first):
    draws = random.Random(2)
    cells = [[round(draws.random(), 2) for _ in range(60)] for _ in range(3)]
    text = table(first, *cells)
    said = surveyed(text).survey.warnings
    assert any("the first row is read as a record" in each for each in said), said
    declared = surveyed(text, settings=("header=true",))
    assert "60 rows" in declared.survey.facts[0]
    assert "label: 7" in config(declared) or "label: " in config(declared)


def test_every_column_left_out_is_a_line_with_its_key():
    draws = random.Random(3)
    result = surveyed(
        table(
            "id,name,same,gaps,mixed,a,kind",
            range(60),
            [f"Name {at}" for at in range(59)],
            ["x"],
            [""],
            [*(draws.random() for _ in range(40)), *(f"odd{at}" for at in range(7))],
            [draws.random() for _ in range(60)],
            ["p", "q"],
        )
    )
    lines = {line.split(":")[0]: line for line in result.survey.left_out}
    assert [*lines] == ["'id'", "'name'", "'same'", "'gaps'", "'mixed'"]
    assert "`columns: {id: number}` takes it" in lines["'id'"]
    assert "`columns: {name: text}`" in lines["'name'"]
    assert "`missing: [odd" in lines["'mixed'"]
    given = surveyed(
        Path("t.csv").read_text(), settings=("columns={name: text}", "header=true", "label=kind")
    )
    assert "'name'" not in "".join(given.survey.left_out)


def test_a_label_that_is_not_the_last_column_is_said():
    cells = [f"0.{at}" for at in range(1, 60)]
    names = [f"Name {at}" for at in range(59)]
    result = surveyed(table("a,grade,name", cells, ["x", "y"], names))
    assert any(
        "the label is 'grade', not the last column 'name'" in each for each in result.survey.doubts
    )


def test_several_labels_make_a_network_of_probabilities():
    tags = ["red|round", "red", "small|round", "", "small", "red|small"]
    text = table("a,tags", [f"0.{at}" for at in range(1, 60)], tags)
    result = surveyed(text)
    assert any("several classes in a label, separated by '|'" in e for e in result.survey.doubts)
    assert "classes: [red, round, small]" in config(result)
    assert "LogisticRegressionOutput" in config(result)
    evaluation = run_training("threads=1", "train.epochs=2", config=result.file)["eval"]
    assert isinstance(evaluation, dict)
    assert "binary_accuracy" in evaluation
    flags = table("a,red,round", [f"0.{at}" for at in range(1, 60)], ["True", "False"], [0, 1, 1])
    both = surveyed(flags, label="red,round")
    assert "label: [red, round]" in config(both)
    assert opened(both).classes == ("red", "round")


def test_a_text_beside_numbers_gets_its_vocabulary():
    words = ["good", "bad", "fast", "late", "broken", "fine", "never", "again"]
    draws = random.Random(4)
    notes = [" ".join(draws.choices(words, k=6)) for _ in range(60)]
    labels = ["yes" if "good" in note else "no" for note in notes]
    result = surveyed(table("price,note,again", range(5, 60), notes, labels))
    assert any("'note' is read as texts" in each for each in result.survey.doubts)
    encoding = opened(result).encoding
    assert encoding is not None
    assert encoding.inputs == ("price", *(f"note:{word}" for word in sorted(words)))
    evaluation = run_training("threads=1", "train.epochs=40", config=result.file)["eval"]
    assert isinstance(evaluation, dict)
    assert evaluation["accuracy"] > 0.8


def places(decimals: int, count: int = 61) -> list[str]:
    draws = random.Random(1)
    return [f"{draws.uniform(45, 55):.{decimals}f}" for _ in range(count)]


def test_each_column_has_its_own_form_of_numbers():
    text = table(
        "price;lat;lon;count;kind",
        *(prices(), places(3), places(4), ["1.200", "34.000", "500"], ["p", "q"]),
        delimiter=";",
    )
    result = surveyed(text)
    said = result.survey.doubts
    own = '{number: {cells: {decimal: "."}}}'
    assert [each.split(" ")[0].strip("'") for each in said][1:3] == ["lat", "lon"]
    assert f"(columns: {{lat: {own}}})" in said[1]
    assert (
        said[3] == f"'1.200' in 'count' is read as 1200; it is 1.2 with columns: {{count: {own}}}"
    )
    assert f"lat: {own}" in config(result)
    dataset = opened(result)
    assert dataset.encoding is not None
    lat = dataset.encoding.columns[1]
    assert 45 < lat.center < 55
    # Other tables, and texts in Python, are read in the same forms.
    run_training("threads=1", "train.epochs=1", config=result.file)
    model = mxrun.load("runs/t")
    row = {"price": "1.000,00", "lat": "52.520", "lon": 52.52, "count": "1.200"}
    exact = {"price": 1000, "lat": 52.52, "lon": "52.52", "count": 1200.0}
    assert np.array_equal(model.predict(row).values, model.predict(exact).values)
    Path("rows.csv").write_text(";".join(row) + "\n" + ";".join(map(str, row.values())) + "\n")
    assert np.array_equal(model.predict("rows.csv").values, model.predict(exact).values)


def test_columns_of_a_series_have_their_own_forms():
    days = [f"{datetime.date(2023, 1, 1) + datetime.timedelta(at):%d.%m.%Y}" for at in range(280)]
    text = table("day;load;heat", days, prices(280), places(3, 280), rows=280, delimiter=";")
    result = surveyed(text)
    assert result.survey.dataset == "series"
    assert 'heat: {number: {cells: {decimal: "."}}}' in config(result)
    summary = run_training("threads=1", "train.epochs=1", config=result.file)
    # The unit of the errors is that of the column: degrees, not thousandths.
    assert mxrun.load(summary["run_dir"]).evaluate()["mae"] < 20


def test_the_label_has_the_form_of_the_table():
    text = table("price;weight;lat", prices(), range(50), places(4), delimiter=";")
    result = surveyed(text)
    assert '{price: {number: {cells: {decimal: ",", thousands: "."}}}}' in result.survey.doubts[0]
    labels = opened(result).fields["label"].records
    assert 45 < labels.min() < labels.max() < 55


def test_numbers_without_a_sign_among_percentages_are_said():
    result = surveyed(table("x;b;kind", ["75%", "12%", "80"], [1, 2], ["p", "q"], delimiter=";"))
    (said,) = result.survey.doubts
    assert "(percent: true); 20 of its numbers have no % and stay, such as 80" in said


def test_a_sign_may_be_a_gap_in_one_column_and_a_class_in_another():
    text = table("x,y,label", ["1.5", "-", "3", "2.5", "4"], range(40), ["+", "-"])
    result = surveyed(text)
    assert result.survey.classes == ("+", "-")
    (said,) = result.survey.doubts
    assert 'columns: {x: {number: {cells: {missing: ["-"]}}}}' in said
    assert opened(result).classes == ("+", "-")


def test_numbers_that_begin_with_0_have_no_signs_of_thousands():
    result = surveyed(table("x;b;kind", ["0.125", "12,5"], [1, 2], ["p", "q"], delimiter=";"))
    assert "x: category" in config(result)
    assert any("has a comma" in each or "'x'" in each for each in result.survey.doubts)


def test_arrays_that_cannot_be_read_are_said():
    data, labels = np.zeros((60, 4), "float32"), np.arange(60) % 2
    data[:, 0] = np.arange(60)
    np.savez("a.npz", data=data, label=labels, phase=np.zeros(60, "complex64"))
    left_out = init(InitOptions(source="a.npz")).survey.left_out
    assert left_out == ("a.npz: phase.npy: byte 10: unsupported dtype ('<c8')",)
    np.savez("b.npz", data=data, label=labels.astype([("a", "i4")]))
    with pytest.raises(UserError, match=r"b.npz: label.npy: byte 10: (unsupported|the header)"):
        init(InitOptions(source="b.npz"))


def test_a_column_that_is_nearly_empty_is_doubted():
    text = table("x,y,kind", ["1.5", *[""] * 39], range(50), ["p", "q"], rows=80)
    (said,) = surveyed(text).survey.doubts
    assert said == "missing in nearly all rows: 'x'; `columns: {NAME: ignore}` leaves one out"


def test_what_the_user_says_goes_first():
    text = table("x;b;kind", ["1,234", "12,345"], [1, 2], ["p", "q"], delimiter=";")
    result = surveyed(text, settings=("decimal=','",))
    assert 'decimal: ","' in config(result)
    assert "thousands" not in config(result)
    with pytest.raises(UserError, match="did you mean 'decimal'"):
        surveyed(text, settings=("decimel=','",))
