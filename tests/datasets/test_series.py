"""Series: windows as NumPy makes them, scaling without leaks, gaps, and tables that are refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from batches import make_slots
from numpy.lib.stride_tricks import sliding_window_view
from refusals import only_problem
from series_tables import hours, open_series, wave, write_table

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.loading.open import open_iterator
from mxrun.io.series.encoding import SeriesEncoding

SIZES = {"time": "time", "target": "load", "window": 8, "horizon": 4, "season": 4}


@pytest.fixture
def path(empty_folder: Path) -> Path:
    load, warm = wave(200), wave(200, 24, 1)
    return write_table("load.csv", {"time": hours(200), "warm": warm, "load": load})


def scaled(values, train):
    known = np.asarray(values, np.float64)
    part = known[train]
    return ((known - part.mean()) / part.std()).astype(np.float32)


def test_windows_are_those_of_numpy(path: Path) -> None:
    found = open_series(path, ("train", "validation"), past=["warm"], **SIZES)
    for split, part in (("train", slice(0, 160)), ("validation", slice(160, 180))):
        load = scaled(wave(200), slice(0, 160))[part]
        warm = scaled(wave(200, 24, 1), slice(0, 160))[part]
        fields = found[split].fields
        steps = np.stack([load, warm], 1)
        windows = sliding_window_view(steps, 8, 0).swapaxes(1, 2)[: len(load) - 11]
        assert np.allclose(fields["data"].taken(slice(None)), windows, atol=1e-6)
        ahead = sliding_window_view(load, 4)
        assert np.allclose(fields["label"].taken(slice(None)), ahead[8:], atol=1e-6)
        assert np.allclose(fields["naive"].taken(slice(None)), ahead[4:-4], atol=1e-6)
        assert np.array_equal(fields["last"].taken(3), fields["data"].taken(3)[-1:])
        assert len(found[split]) == len(load) - 11


def test_no_window_is_copied_and_batches_hold_the_records(path: Path) -> None:
    inputs = {"data": TensorSpec((8, 2)), "label": TensorSpec((4,))}
    dataset = open_series(path, inputs=inputs, past=["warm"], **SIZES)["train"]
    held = dataset.fields["data"].records
    assert dataset.fields["data"].distinct.size == 160 * 2
    assert held.base is not None
    assert held.strides[0] < held[0].nbytes
    iterator = open_iterator(dataset.with_fields(inputs), 16, shuffle=True, seed=3)
    slots, seen = make_slots(iterator), []
    while (batch := iterator.next_into(slots)) is not None:
        indices = batch.indices[: batch.valid]
        seen += indices.tolist()
        for name in inputs:
            assert np.array_equal(slots[name][: batch.valid], dataset.fields[name].taken(indices))
    assert sorted(seen) == list(range(149)) != seen


def test_values_after_the_training_part_reach_nothing_of_it(path: Path) -> None:
    before = open_series(path, past=["warm"], **SIZES)["train"]
    lines = path.read_text().splitlines()
    changed = [
        *lines[:161],
        *(f"{line.split(',')[0]},-999,{at}e5" for at, line in enumerate(lines[161:])),
    ]
    path.write_text("\n".join(changed) + "\n")
    after = open_series(path, past=["warm"], **SIZES)["train"]
    assert before.encoding == after.encoding
    assert fingerprint(before) == fingerprint(after)
    # But those of the part do.
    path.write_text(path.read_text().replace(",50.", ",51.", 1))
    assert open_series(path, past=["warm"], **SIZES)["train"].encoding != before.encoding


def test_windows_look_over_an_edge_only_if_they_may(path: Path) -> None:
    (whole, part) = open_series(path, ("train", "validation"), **SIZES).values()
    assert (len(whole), len(part)) == (149, 9)
    back = open_series(path, ("train", "validation"), look_back=True, **SIZES)["validation"]
    assert len(back) == 17
    assert back.series is not None
    assert back.series.starts[0] + 8 == 160
    problem = only_problem(open_series, path, ("train", "validation"), **{**SIZES, "window": 40})
    assert problem.problem == "the split validation has no window"
    assert problem.got == "20 steps"
    assert problem.hint is not None
    assert "look_back: true" in problem.hint


def test_no_window_says_what_is_lacking(path: Path) -> None:
    lines = path.read_text().splitlines()
    every_tenth = [line for at, line in enumerate(lines) if at % 10 != 5]
    path.write_text("\n".join(every_tenth) + "\n")
    problem = only_problem(open_series, path, **SIZES)
    assert problem.got == "gaps: 0 of 180 rows lack a number, 20 steps have no row"
    longer = {**SIZES, "window": 180, "look_back": True}
    problem = only_problem(open_series, path, ("validation",), **longer)
    assert (problem.got, problem.hint) == ("180 steps", "write a smaller window")
    problem = only_problem(open_series, path, validation=0.5, test=0.5, **SIZES)
    assert problem.problem == "validation and test leave no time for training"


@pytest.mark.parametrize("key", ["past", "known"])
def test_a_target_is_no_further_column(path: Path, key: str) -> None:
    problem = only_problem(open_series, path, **{key: [2]}, **SIZES)
    assert problem.problem == "the column 2 is named twice among target, past and known"


def test_strides_count_from_the_first_window(path: Path) -> None:
    dataset = open_series(path, stride=24, **SIZES)["train"]
    assert dataset.series is not None
    assert dataset.series.starts.tolist() == list(range(0, 149, 24))


def test_known_columns_and_the_calendar_are_read_ahead(path: Path) -> None:
    dataset = open_series(path, known=["warm"], calendar=["day"], **SIZES)["train"]
    warm = scaled(wave(200, 24, 1), slice(0, 160))
    future = dataset.fields["future"].taken(5)
    assert np.allclose(future[:, 0], warm[13:17], atol=1e-6)
    angles = 2 * np.pi * np.arange(13, 17) / 24
    assert np.allclose(future[:, 1], np.sin(angles), atol=1e-6)
    assert np.allclose(future[:, 2], np.cos(angles), atol=1e-6)
    assert dataset.fields["data"].spec == TensorSpec((8, 4))


def test_several_series_have_their_own_windows_and_scales(empty_folder: Path) -> None:
    small, large = wave(120), 1000 * wave(90, 12, 2)
    columns = {
        "time": [*hours(120), *hours(90, 30), *hours(5)],
        "place": ["a"] * 120 + ["b"] * 90 + ["c"] * 5,
        "load": [*small, *large, *range(5)],
    }
    path = write_table("places.csv", columns)
    dataset = open_series(path, series="place", **SIZES)["train"]
    assert dataset.series is not None
    assert isinstance(dataset.encoding, SeriesEncoding)
    # All series are divided at the same hours: at 96 of 120, which is 66 of b's 90.
    assert len(dataset) == (96 - 11) + (66 - 11)
    assert any("c (5 steps)" in note for note in dataset.notes)
    labels = dataset.fields["label"].taken(slice(None))
    assert np.allclose(
        labels[:85], sliding_window_view(scaled(small, slice(0, 96)), 4)[8:93], atol=1e-5
    )
    assert np.allclose(
        labels[85:], sliding_window_view(scaled(large, slice(0, 66)), 4)[8:63], atol=1e-5
    )
    every = np.arange(len(dataset))
    original = dataset.encoding.original(labels, dataset.series.series_of(every))
    assert np.allclose(original, dataset.series.targets(every)[..., 0], rtol=1e-6)
    together = open_series(path, series="place", scale="all", **SIZES)["train"]
    assert isinstance(together.encoding, SeriesEncoding)
    assert not together.encoding.target_columns[0].of_series


def test_gaps_are_left_out_or_filled_or_refused(empty_folder: Path) -> None:
    load = [*map(float, wave(100))]
    rows = {
        "time": hours(100),
        "load": [None if at == 30 else each for at, each in enumerate(load)],
    }
    lacking = {name: [*values[:60], *values[63:]] for name, values in rows.items()}
    path = write_table("gaps.csv", lacking)
    options = {**SIZES, "season": 2}
    dataset = open_series(path, **options)["train"]
    assert dataset.series is not None
    # Of 80 steps, one value and three rows are missing.
    whole = [start for start in range(69) if not {30, 60, 61, 62} & set(range(start, start + 12))]
    assert dataset.series.steps.positions[dataset.series.starts].tolist() == whole
    assert "3 steps of 1 hour have no row" in dataset.notes
    filled = open_series(path, gaps="previous", **options)["train"]
    assert filled.series is not None
    assert len(filled) == 69
    values = filled.series.steps.values(0)
    assert values[30] == load[29]
    assert (values[60:63] == load[59]).all()
    problem = only_problem(open_series, path, gaps="error", **options)
    assert problem.problem == "gaps.csv:62:1: the step before has no row"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("2024-01-01 04:07,1,2", "load.csv:6:1: the time stamp is irregular"),
        ("2024-01-01 03:00,1,2", "load.csv:6:1: a series has this time stamp twice: load.csv:5:1"),
        ("soon,1,2", "load.csv:6:1: column 'time': not a date"),
        (",1,2", "load.csv:6:1: column 'time': the value is missing"),
        ("2024-01-01 04:00,1,many", "load.csv:6:3: column 'load': not a number"),
    ],
)
def test_refused_rows_are_named(path: Path, row: str, expected: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], row, *lines[6:]]) + "\n")
    problem = only_problem(open_series, path, **SIZES).problem
    assert re.sub(r"byte \d+: ", "", problem) == expected


def test_market_days_are_rows(empty_folder: Path) -> None:
    days = [f"2024-{at // 20 + 1:02}-{at % 20 + 1:02}" for at in range(100)]
    path = write_table("market.csv", {"time": days, "load": wave(100)})
    assert len(open_series(path, steps="rows", **SIZES)["train"]) == 69
    assert len(open_series(path, **SIZES)["train"]) < 69


def test_months_have_one_length(empty_folder: Path) -> None:
    months = [f"{2000 + at // 12}-{at % 12 + 1:02}-01" for at in range(60)]
    ends = [str(np.datetime64(f"{2000 + at // 12}-{at % 12 + 1:02}", "M") + 1) for at in range(60)]
    ends = [str(np.datetime64(f"{each}-01") - 1) for each in ends]
    for stamps in (months, ends):
        dataset = open_series(write_table("m.csv", {"time": stamps, "load": wave(60)}), **SIZES)
        series = dataset["train"].series
        assert series is not None
        clock = series.steps.clock
        assert str(clock) == "1 month"
        assert [clock.text(at) for at in (0, 1, 59)] == [stamps[0], stamps[1], stamps[59]]
        assert clock.text(62) == ("2005-03-01" if stamps is months else "2005-03-31")


def test_rows_out_of_order_are_sorted_with_a_note(path: Path) -> None:
    lines = path.read_text().splitlines()
    sorted_first = open_series(path, **SIZES)["train"]
    path.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    dataset = open_series(path, **SIZES)["train"]
    assert fingerprint(dataset) == fingerprint(sorted_first)
    assert any("not in order of time" in note for note in dataset.notes)


def test_a_random_share_of_windows_is_refused(path: Path) -> None:
    problem = only_problem(open_series, path, ({"share": 0.8},), **SIZES)
    assert "windows overlap" in problem.problem
