"""Dates of tables: many at once are those that are read one by one."""

from __future__ import annotations

import numpy as np
import pytest

from mxrun.io.tables.readers import DateReader, day_number


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        (None, ["2024-02-29", "1969-12-31", "2100-01-01"]),
        (None, ["2024-02-29 23:59", "2024-03-01T00:00"]),
        (None, ["2024-02-29T23:59:58", "1900-01-01 00:00:01"]),
        (
            None,
            ["2024-02-29", "2024-02-29 12:00", "2024-02-29T12:00+02:00", "2024-01-01 01:02:03.5"],
        ),
        ("%d.%m.%Y", ["29.02.2024", "01.03.2024", "29.02.2024"]),
        ("%Y%m%d", ["20240229", "20240301"]),
    ],
)
def test_days_are_those_of_single_dates(form: str | None, texts: list[str]) -> None:
    reader = DateReader(form)
    assert reader.add([text.encode() for text in texts]) == []
    assert reader.wrong is None
    assert reader.numbers().tolist() == [day_number(text, form) for text in texts]


def test_gaps_and_the_first_wrong_cell_are_found() -> None:
    reader = DateReader(None)
    assert reader.add([b"2024-01-01", b"", b"NA"]) == [1, 2]
    assert reader.add([b"2024-01-01", b"2023-02-29", b"soon"]) == []
    assert reader.wrong == (4, b"2023-02-29")
    assert np.isnan(reader.numbers()).tolist() == [False, True, True, False, True, True]
