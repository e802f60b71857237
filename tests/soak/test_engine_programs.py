"""Thousands of random programs on the engine, and ten minutes of them without growth."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from engine_programs import Completer, accepted, expected, guarded, random_program, run
from process_usage import usage

from mxrun.runtime.engine.default import new_engine
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.engine.threaded import ThreadedEngine

pytestmark = pytest.mark.soak

Record = Callable[[str, object], None]
# Seeds other than those of the plain tests.
FIRST, PROGRAMS = 1_000_000, 20_000
SECONDS, WARM_SECONDS, LOOKS = 600, 60, 9
GROWTH = 2 << 20
HANG_S = 3600.0


class Checked:
    """Engine on which programs are run and compared with the model."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.pushed = engine, 0

    def run(self, seed: int, completer: Completer) -> None:
        program = random_program(seed)
        assert run(program, self.engine, completer, self.pushed) == expected(program), seed
        self.pushed += accepted(program)


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_20_000_random_programs(workers: int, record_property: Record) -> None:
    """Both kinds of engine give what the model does, and so the same final state."""

    def body() -> None:
        with Completer() as completer:
            threaded, naive = Checked(ThreadedEngine(workers)), Checked(new_engine("naive"))
            for seed in range(FIRST, FIRST + PROGRAMS):
                threaded.run(seed, completer)
                if workers == 1:
                    naive.run(seed, completer)
            threaded.engine.close()
            record_property("programs", PROGRAMS)
            record_property("pushes", threaded.pushed)

    guarded(body, HANG_S)


def test_ten_minutes_need_no_more_than_the_first(record_property: Record) -> None:
    def body() -> None:
        with Completer() as completer:
            checked = Checked(ThreadedEngine(4))
            start, seed, seen = time.monotonic(), FIRST, []
            for look in range(LOOKS):
                until = start + WARM_SECONDS + look * (SECONDS - WARM_SECONDS) / (LOOKS - 1)
                while time.monotonic() < until:
                    checked.run(seed, completer)
                    seed += 1
                seen.append(usage(os.getpid()))
            checked.engine.close()
        resident = [each.resident for each in seen]
        record_property("programs", seed - FIRST)
        record_property("pushes", checked.pushed)
        record_property("KiB more resident", (max(resident) - resident[0]) >> 10)
        record_property("threads", seen[0].threads)
        assert max(resident) - resident[0] < GROWTH, resident
        assert {each.threads for each in seen} == {seen[0].threads}
        assert {each.files for each in seen} == {seen[0].files}

    guarded(body, HANG_S)
