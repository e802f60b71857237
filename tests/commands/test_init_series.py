"""`init` recognises series, says so, and writes configs that train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from series_tables import hours, wave, write_table
from training import run_training

import mxrun
from mxrun.base.errors import UserError
from mxrun.commands.evaluate import evaluate
from mxrun.commands.infer import Forecasts, infer
from mxrun.commands.init import InitResult, init
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.options.init import InitOptions


@pytest.fixture(autouse=True)
def folder(empty_folder: Path) -> Path:
    return empty_folder


def surveyed(name: str = "load.csv", **options: object) -> InitResult:
    return init(InitOptions(source=name, overwrite=True, **options))  # type: ignore[arg-type]


def written(result: InitResult, key: str) -> object:
    return result.survey.options.get(key)


def test_a_table_with_hours_in_order_is_a_series() -> None:
    columns = {"time": hours(400), "warm": wave(400, 24, 1), "load": wave(400, 24)}
    write_table("load.csv", columns)
    result = surveyed()
    assert result.survey.dataset == "series"
    assert {key: written(result, key) for key in ("time", "target", "past", "season")} == {
        "time": "time",
        "target": "load",
        "past": ["warm"],
        "season": 24,
    }
    (as_series, target, past) = result.survey.doubts
    assert as_series.endswith("`--as table` reads its rows as records")
    assert "`--label COLUMN`" in target
    assert "`known=[warm]` behind the file" in past
    summary = run_training("train.epochs=1", config="load.yaml")
    assert summary["steps"] > 0
    head = evaluate(EvaluateOptions(run=Path("runs/load"))).run().heads[0]
    assert len(head.forecasts) == 3
    found = infer(InferOptions(run=Path("runs/load"), inputs=("load.csv",)))
    assert isinstance(found, Forecasts)
    assert found.values.shape[2] == 1
    # Otherwise it is a table.
    assert surveyed(kind="table").survey.dataset == "csv"
    assert surveyed(task="regression").survey.dataset == "csv"
    assert written(surveyed(label="warm"), "target") == "warm"
    assert written(surveyed(label="warm,load"), "target") == ["warm", "load"]
    known = surveyed(settings=("known=[warm]",))
    assert (written(known, "known"), written(known, "past")) == (["warm"], None)
    assert written(surveyed(settings=("window=12",)), "season") is None


def test_rows_after_the_last_target_tell_what_is_known() -> None:
    load = [*wave(300, 24), *[None] * 24]
    write_table("load.csv", {"time": hours(324), "load": load, "warm": wave(324, 24)})
    result = surveyed(label="load")
    assert written(result, "known") == ["warm"]
    assert any("known of the future" in each for each in result.survey.doubts)


def test_several_series_are_told_apart_by_a_column() -> None:
    columns = {"time": hours(100) * 3, "place": ["a"] * 100 + ["b"] * 100 + ["c"] * 100}
    write_table("load.csv", {**columns, "load": [*wave(100), *wave(100), *wave(100)]})
    result = surveyed()
    assert (written(result, "series"), written(result, "target")) == ("place", "load")
    assert "3 series, named in 'place': a 100, b 100, c 100" in result.survey.facts
    # A series that ends early is not evaluated.
    Path("load.csv").write_text("\n".join(Path("load.csv").read_text().splitlines()[:-40]) + "\n")
    (note,) = surveyed().survey.warnings
    assert note.startswith("validation: 1 of 3 series have no window")


def test_german_days_are_read() -> None:
    days = [f"{at % 28 + 1:02}.{at // 28 + 1:02}.2023" for at in range(28 * 12)]
    lines = [f"{day};{at % 7},5" for at, day in enumerate(days)]
    Path("load.csv").write_text("Tag;Wert\n" + "\n".join(lines) + "\n")
    result = surveyed(kind="series", settings=("steps=rows",))
    assert written(result, "columns") == {"Tag": {"date": {"format": "%d.%m.%Y"}}}
    assert (written(result, "decimal"), written(result, "steps")) == (",", "rows")


def test_what_is_no_series_stays_a_table() -> None:
    shuffled = [hours(100)[at * 37 % 100] for at in range(100)]
    write_table("load.csv", {"time": shuffled, "load": wave(100)})
    assert surveyed().survey.dataset == "csv"
    odd = [each.replace(":00", f":{at * 7 % 60:02}") for at, each in enumerate(hours(100))]
    write_table("load.csv", {"time": odd, "load": wave(100)})
    assert surveyed().survey.dataset == "csv"
    sky = ["rain" if at % 3 else "sun" for at in range(100)]
    write_table("sky.csv", {"time": hours(100), "warm": wave(100), "sky": sky})
    assert surveyed("sky.csv").survey.dataset == "csv"
    with pytest.raises(UserError, match="the time stamp is irregular"):
        surveyed(kind="series")


def test_what_resembles_a_series_is_said() -> None:
    def doubt() -> str:
        result = surveyed()
        assert result.survey.dataset == "csv"
        return result.survey.doubts[-1]

    backwards = {"time": hours(100)[::-1], "load": wave(100)}
    write_table("load.csv", backwards)
    assert doubt().endswith("not in order of 'time'; `--as series` sorts them")
    # An hour comes twice when summer time ends.
    write_table("load.csv", {"time": [*hours(60), *hours(60, 59)], "load": wave(120)})
    assert doubt().endswith("load.csv:62:1: a series has this time stamp twice: load.csv:61:1")


def test_gaps_are_filled_where_hardly_a_window_is_without() -> None:
    load = [None if at % 20 == 7 else each for at, each in enumerate(wave(400, 24))]
    write_table("load.csv", {"time": hours(400), "load": load})
    result = surveyed()
    assert written(result, "gaps") == "previous"
    assert any("`gaps: skip`" in each for each in result.survey.doubts)
    run_training("train.epochs=1", config="load.yaml")
    # A key that only series have makes it one.
    with pytest.raises(UserError, match="the split train has no window"):
        surveyed(settings=("gaps=skip",))


def test_one_column_is_a_series_if_it_shall_be() -> None:
    write_table("load.csv", {"load": wave(300)})
    result = surveyed(kind="series", settings=("season=12",))
    assert "a series: each row is the next step" in result.survey.facts
    assert (written(result, "time"), written(result, "season")) == (None, 12)
    run_training("train.epochs=1", config="load.yaml")


def test_columns_have_numbers_in_forms_of_their_own() -> None:
    warm = [f"{value:.1f}" for value in wave(200, 24)]
    load = [f"{value:.2f}".replace(".", ",") for value in 1000 * wave(200, 24)]
    lines = [";".join(row) for row in zip(hours(200), warm, load, strict=True)]
    Path("load.csv").write_text("time;warm;load\n" + "\n".join(lines) + "\n")
    result = surveyed()
    assert written(result, "past") == ["warm"]
    run_training("train.epochs=1", config="load.yaml")
    found = infer(InferOptions(run=Path("runs/load"), inputs=("load.csv",)))
    assert isinstance(found, Forecasts)
    model = mxrun.load("runs/load")
    columns = {"time": hours(200), "warm": np.round(wave(200, 24), 1)}
    columns["load"] = np.round(1000 * wave(200, 24), 2)
    assert np.array_equal(model.predict(columns).values, found.values[..., 0])
