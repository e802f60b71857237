"""Stores over the processes that mpirun has started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rank_jobs import MPIRUN, python_on

pytestmark = [
    pytest.mark.commands,
    pytest.mark.skipif(not MPIRUN.exists(), reason="needs mpirun beside Python: pip install mpich"),
]

KINDS = ("dist_sync", "dist_device_sync")
PROGRAM = Path(__file__).parents[1] / "support" / "rank_store.py"


def test_K1_K3_K4_ranks_get_the_same_bits_whatever_their_number(empty_folder: Path) -> None:
    """And both kinds of stores; the initial values are those of the first rank."""
    computed = set()
    for ranks in (1, 2, 4):
        done = python_on(ranks, PROGRAM, f"states{ranks}")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == ranks
        for line in lines:
            for kind, result in zip(KINDS, json.loads(line), strict=True):
                assert (result["type"], result["workers"]) == (kind, ranks)
                assert result["start"]
                computed.add((*result["arrays"],))
    assert len(computed) == 1


def test_K4_an_exception_of_one_rank_ends_all(empty_folder: Path) -> None:
    done = python_on(2, PROGRAM, "states", "1")
    assert done.returncode == 1, done.stderr
    assert "ZeroDivisionError: planted" in done.stderr
    assert "ZeroDivisionError on rank 1 of 2, which ends all ranks" in done.stderr
