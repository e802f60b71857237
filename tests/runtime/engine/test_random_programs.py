"""Random programs on both engines do what a serial model of the rules does."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from engine_programs import Completer, accepted, expected, guarded, random_program, run

from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine

# Each case of a matrix takes one block of seeds.
BLOCK = 40
WORKERS = [1, 2, 4, 16]


def check(engine: Engine, seeds: Iterable[int], failures: bool) -> None:
    pushed = 0
    with Completer() as completer:
        for seed in seeds:
            program = random_program(seed, failures)
            observed = run(program, engine, completer, pushed)
            assert observed == expected(program), f"program {seed}"
            pushed += accepted(program)
    engine.close()


@pytest.mark.parametrize("block", range(25))
@pytest.mark.parametrize("workers", WORKERS)
def test_E2_E3_random_graphs_equal_serial_execution(workers: int, block: int) -> None:
    """1,000 graphs: every function sees the versions that it would see in a serial run."""
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    guarded(lambda: check(ThreadedEngine(workers), seeds, failures=False))


@pytest.mark.parametrize("block", range(25))
@pytest.mark.parametrize("workers", WORKERS)
def test_E9_E11_E12_random_programs_with_failures_equal_the_model(workers: int, block: int) -> None:
    """1,000 programs: who ran, who failed with which cause, what waits raise, what is deleted."""
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    guarded(lambda: check(ThreadedEngine(workers), seeds, failures=True))


@pytest.mark.parametrize("failures", [False, True])
def test_E17_the_naive_engine_equals_the_model(failures: bool) -> None:
    guarded(lambda: check(NaiveEngine(), range(200), failures))
