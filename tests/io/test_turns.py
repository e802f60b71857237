"""Turns of loader threads: small records are made by one thread at a time, others side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from mxrun.io.loading.turns import Turns

HANG_S = 600
SMALL_ROW, LARGE_ROW = 3 * 32 * 32 * 4, 3 * 224 * 224 * 4
SMALL, LARGE = 1000, 50_000


def other_enters(stage: Callable[[], AbstractContextManager[None]]) -> threading.Event:
    """Return what is set when another thread is in the stage."""
    entered = threading.Event()

    def enter() -> None:
        with stage():
            entered.set()

    threading.Thread(target=enter, daemon=True).start()
    return entered


@pytest.mark.parametrize("stage", ["reading", "making"])
def test_small_records_are_made_in_turn(stage):
    turns = Turns(SMALL_ROW, runs_python=False, patience=HANG_S)
    turns.note(64, 64 * SMALL)
    with getattr(turns, stage)():
        others = [other_enters(turns.making), other_enters(turns.reading)]
        assert not any(each.wait(0.05) for each in others)
    assert all(each.wait(HANG_S) for each in others)


@pytest.mark.parametrize(
    ("row", "runs_python", "record"),
    [(LARGE_ROW, False, SMALL), (SMALL_ROW, True, SMALL), (SMALL_ROW, False, LARGE)],
)
def test_other_records_are_made_side_by_side(row, runs_python, record):
    turns = Turns(row, runs_python, HANG_S)
    turns.note(64, 64 * record)
    with turns.making():
        assert other_enters(turns.making).wait(HANG_S)
        assert other_enters(turns.reading).wait(HANG_S)
    with turns.reading():
        assert other_enters(turns.reading).wait(HANG_S)


def test_reads_that_wait_for_a_disk_are_side_by_side():
    turns = Turns(SMALL_ROW, runs_python=False, patience=HANG_S)
    turns.note(64, 64 * SMALL)
    with turns.reading():
        time.sleep(0.1)
    with turns.reading():
        assert other_enters(turns.reading).wait(HANG_S)
        assert other_enters(turns.making).wait(HANG_S)


def test_a_turn_ends_with_an_error():
    turns = Turns(SMALL_ROW, runs_python=False, patience=HANG_S)
    for stage in (turns.reading, turns.making):
        with pytest.raises(ValueError, match="damaged"), stage():
            raise ValueError("damaged")
    assert other_enters(turns.making).wait(HANG_S)


def test_no_thread_waits_long_for_a_read_that_does_not_end():
    turns = Turns(SMALL_ROW, runs_python=False, patience=0.01)
    with turns.reading():
        assert other_enters(turns.making).wait(HANG_S)
        assert other_enters(turns.reading).wait(HANG_S)
