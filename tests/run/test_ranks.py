"""`kvstore: dist_sync`: processes that mpirun has started train together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import digests, mxrun, succeeded
from interrupted_runs import CONFIG
from rank_jobs import MPIRUN, mxrun_on

pytestmark = [
    pytest.mark.commands,
    pytest.mark.skipif(not MPIRUN.exists(), reason="needs mpirun beside Python: pip install mpich"),
]

DISTRIBUTED = "kvstore=dist_sync"
SHORT = ("train.epochs=1",)


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(CONFIG.replace("name: killed", "name: net"))


def results(name: str) -> dict[str, str]:
    """Return the digests of a run's files that do not depend on how it was started."""
    found = digests(Path("runs") / name)
    del found["config.yaml"]
    return found


@pytest.fixture
def expected(empty_folder: Path) -> dict[str, str]:
    """Return the results of the run in one process."""
    succeeded(mxrun("train", "net.yaml", "name=expected", "batch_parts=4"))
    return results("expected")


def test_K3_D1_D2_ranks_give_the_bits_of_one_process(expected: dict[str, str]) -> None:
    """Metrics of all epochs too; the number of threads changes nothing. Batch normalisation,
    dropout, augmented records, averages, adam, and a padded evaluation.
    """
    for ranks in (1, 2, 4):
        words = (f"name=ranks{ranks}", f"threads={3 - min(ranks, 2)}", DISTRIBUTED)
        done = succeeded(mxrun_on(ranks, "train", "net.yaml", *words, "--json"))
        assert json.loads(done.stdout)["steps"] == 66
        assert results(f"ranks{ranks}") == expected
        # One process reports.
        assert done.stderr.count("parameters, arena") == 1


def test_F5_a_run_goes_on_with_another_number_of_ranks(expected: dict[str, str]) -> None:
    for ranks, epochs in ((4, 1), (2, 2), (1, 3)):
        words = ("train", "net.yaml", "--resume", "train.epochs=3", DISTRIBUTED)
        words += (f"train.max_steps={22 * epochs}", "train.schedule=constant")
        succeeded(mxrun_on(ranks, *words))
    succeeded(mxrun("train", "net.yaml", "name=whole", "batch_parts=4", "train.schedule=constant"))
    assert results("net") == results("whole")
    again = succeeded(mxrun_on(2, "train", "net.yaml", "--resume", *words[3:]))
    assert "already finished" in again.stderr
