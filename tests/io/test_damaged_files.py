"""Damaged files of every format: an error that names the file, or all records; never fewer."""

from __future__ import annotations

import importlib.util
import random
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from lazy_columns import record_of
from stored_formats import COUNT, FORMATS, StoredFormat

from mxrun.base.errors import UserError

# No file here has more than some kilobytes: an allocation by a length in it would be more.
_MAX_BYTES = 64 << 20
_WITHOUT = {"parquet": "pyarrow", "arrow": "pyarrow"}


@pytest.fixture(params=FORMATS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[StoredFormat, Path]:
    required = _WITHOUT.get(request.param)
    if required is not None and importlib.util.find_spec(required) is None:
        pytest.skip(f"{required}, an extra, is not installed")
    stored = FORMATS[request.param]
    stored.write(tmp_path)
    return stored, tmp_path


def records(stored: StoredFormat, folder: Path) -> int | None:
    """Open the data set and read all records; return their number, or None for a UserError."""
    with suppress(UserError):
        dataset = stored.open(folder)
        for name in dataset.lazy:
            for number in range(len(dataset)):
                record_of(dataset, number, name)
        return len(dataset)
    return None


def test_D4_an_undamaged_file_has_all_records(stored):
    format, folder = stored
    assert records(format, folder) == COUNT


def test_D4_a_file_that_is_cut_is_refused_or_has_the_records_before(stored):
    """Cut at the end of each record and a byte before and after it."""
    format, folder = stored
    path = folder / format.damaged
    content = path.read_bytes()
    ends = format.ends(folder)
    assert len(ends) >= 2
    for number, end in enumerate(ends):
        for cut in (end - 1, end, end + 1):
            if cut >= len(content):
                continue
            path.write_bytes(content[:cut])
            found = records(format, folder)
            if format.has_lines and cut == end - 1:
                assert found in (None, number + 1)
            elif format.has_lines and cut == end + 1:
                # The label of the record after it; a note says that the line has no end.
                assert found in (None, number + 2)
            else:
                complete = number + 1 if cut == end and not format.tells_cut else None
                assert found == complete, cut
    path.write_bytes(b"")
    assert records(format, folder) is None


@pytest.mark.parametrize(
    "flips",
    [
        10,
        pytest.param(100, marks=pytest.mark.full),
        pytest.param(1000, marks=pytest.mark.soak),
    ],
)
def test_D4_flipped_bits_are_refused_or_lose_no_record(stored, flips):
    format, folder = stored
    path = folder / format.damaged
    content = path.read_bytes()
    draw = random.Random(flips)
    tracemalloc.start()
    try:
        for _ in range(flips):
            damaged = bytearray(content)
            for _ in range(draw.randint(1, 3)):
                damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            assert records(format, folder) in (None, COUNT), bytes(damaged)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < _MAX_BYTES
