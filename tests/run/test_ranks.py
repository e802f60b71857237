"""`kvstore: dist_sync`: processes that mpirun has started train together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import MXRUN, digests, mxrun, succeeded
from interrupted_runs import CONFIG
from PIL import Image
from rank_jobs import FAULTY, MPIRUN, mxrun_on, on_ranks, python_on
from training import newest

pytestmark = [
    pytest.mark.commands,
    pytest.mark.skipif(not MPIRUN.exists(), reason="needs mpirun beside Python: pip install mpich"),
]

DISTRIBUTED = "kvstore=dist_sync"
NET = CONFIG.replace("name: killed", "name: net")


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(NET)


def results(folder: Path) -> dict[str, str]:
    """Return the digests of a run's files that do not depend on how it was started."""
    found = digests(folder)
    del found["config.yaml"]
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the results of the run in one process."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "net.yaml").write_text(NET)
    succeeded(mxrun("train", "net.yaml", "batch_parts=4", cwd=folder))
    return results(folder / "runs/net")


def test_K3_D1_D2_ranks_give_the_bits_of_one_process(expected: dict[str, str]) -> None:
    """Metrics of all epochs too; the number of threads changes nothing. Batch normalisation,
    dropout, augmented records, averages, adam, and a padded evaluation.
    """
    for ranks in (1, 2, 4):
        words = (f"name=ranks{ranks}", f"threads={3 - min(ranks, 2)}", DISTRIBUTED)
        done = succeeded(mxrun_on(ranks, "train", "net.yaml", *words, "--json"))
        assert json.loads(done.stdout)["steps"] == 66
        assert results(Path(f"runs/ranks{ranks}")) == expected
        # One process reports.
        assert done.stderr.count("parameters, arena") == 1


def test_F5_a_run_goes_on_with_another_number_of_ranks(expected: dict[str, str]) -> None:
    for ranks, epochs in ((4, 1), (2, 2), (1, 3)):
        words = ("train", "net.yaml", "--resume", "train.epochs=3", DISTRIBUTED)
        words += (f"train.max_steps={22 * epochs}", "train.schedule=constant")
        succeeded(mxrun_on(ranks, *words))
    succeeded(mxrun("train", "net.yaml", "name=whole", "batch_parts=4", "train.schedule=constant"))
    assert results(Path("runs/net")) == results(Path("runs/whole"))
    again = succeeded(mxrun_on(2, "train", "net.yaml", "--resume", *words[3:]))
    assert "already finished" in again.stderr


@pytest.mark.parametrize("clipped", ["null", pytest.param("0.5", marks=pytest.mark.full)])
def test_K3_F5_states_are_sliced_and_saved_whole(clipped: str) -> None:
    """Each rank has and updates its slices; a run goes on with slices or without."""
    words = ("train.schedule=constant", "train.average=null")
    words += (f"train.optimizer.adam.clip_global_norm={clipped}",)
    for ranks, steps, shard in ((4, 8, "states"), (2, 12, "none"), (2, 15, "states")):
        changed = ("--resume", DISTRIBUTED, f"shard={shard}", f"train.max_steps={steps}")
        done = succeeded(mxrun_on(ranks, "train", "net.yaml", *words, *changed, "--json"))
    inspected = ("inspect-memory", "net.yaml", *words, *changed[1:], "--ranks", "2", "--json")
    planned = json.loads(succeeded(mxrun(*inspected)).stdout)["planned_bytes"]
    memory = json.loads(done.stdout)["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"] == planned
    whole = ("name=whole", "batch_parts=4", "train.max_steps=15")
    succeeded(mxrun("train", "net.yaml", *words, *whole))
    last = "checkpoint-15"
    assert digests(Path("runs/net", last)) == digests(Path("runs/whole", last))


def test_ranks_without_a_slice_update_nothing() -> None:
    """Of 80 bytes of parameters two ranks have cache lines, and two have none."""
    layer = "{FullyConnected: {name: fc, num_hidden: 10, no_bias: true}}"
    Path("few.yaml").write_text(f"""\
name: few
network:
  inputs: {{data: [2], label: []}}
  layers: [{layer}, {{SoftmaxOutput: {{label: label}}}}]
data: {{batch_size: 8, train: {{dataset: synthetic, split: train, records: 64}}}}
train: {{epochs: 1, optimizer: {{sgd: {{lr: 0.1, momentum: 0.9}}}}}}
""")
    succeeded(mxrun("train", "few.yaml", "name=one", "batch_parts=4"))
    succeeded(mxrun_on(4, "train", "few.yaml", DISTRIBUTED, "shard=states"))
    assert results(Path("runs/few")) == results(Path("runs/one"))


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("fail", 1, "ZeroDivisionError on rank 1 of 2, which ends all ranks: planted"),
        ("kill", 9, ""),
        ("stop", 1, "rank 1 of 2 has given no sign of life for 2 s, which ends all ranks"),
        ("hang", 1, "rank 1 of 2 keeps the others waiting for 2 s, which ends all ranks; it was "),
    ],
)
def test_K4_E12_a_faulty_rank_ends_all_and_nothing_is_lost(
    fault: str, code: int, said: str, expected: dict[str, str]
) -> None:
    """The run goes on from the last checkpoint to the bits of an uninterrupted one."""
    words = ("train", "net.yaml", DISTRIBUTED, "rank_timeout=2")
    done = python_on(2, FAULTY, fault, "1", "30", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    # The last one may still be being written when the process is ended.
    assert any(Path(f"runs/net/checkpoint-{step}").is_dir() for step in (21, 28))
    if fault == "kill":
        succeeded(mxrun("train", "net.yaml", "--resume", "batch_parts=4"))
        assert results(Path("runs/net")) == expected


def test_F5_all_ranks_stop_at_the_step_at_which_one_is_told_to(expected: dict[str, str]) -> None:
    done = python_on(2, FAULTY, "interrupt", "1", "30", "train", "net.yaml", DISTRIBUTED)
    assert done.returncode == 75, done.stderr
    assert done.stderr.count("stopped after step 30 and saved in runs/net") == 1
    succeeded(mxrun_on(4, "train", "net.yaml", "--resume", DISTRIBUTED))
    assert results(Path("runs/net")) == expected


def test_parameters_that_change_by_themselves_are_found() -> None:
    words = ("train", "net.yaml", DISTRIBUTED, "train.epochs=5")
    done = python_on(4, FAULTY, "flip", "2", "50", *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("those of rank 2 have changed by themselves") == 1


def test_ranks_that_would_compute_other_runs_are_refused() -> None:
    one = [*MXRUN, "train", "net.yaml", DISTRIBUTED]
    changed = ("seed=3", "train.optimizer.adam.lr=0.1", "data.batch_size=32")
    done = on_ranks((1, one), (1, [*one, *changed]))
    assert done.returncode == 2
    assert done.stderr.count("rank 1 would compute another run than rank 0") == 1
    for difference in ("seed: ", "adam.lr: 0.003 on rank 0, 0.1 here", "batch_size: 64 on rank 0"):
        assert done.stderr.count(difference) == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("ranks", "words", "said"),
    [
        (3, (DISTRIBUTED,), "3 ranks cannot share 4 batch parts"),
        (2, (), "2 processes were started together, but kvstore: local is for one"),
        (
            2,
            (DISTRIBUTED, "train.metrics=[accuracy, auc]"),
            "auc cannot be measured by several ranks",
        ),
    ],
)
def test_what_ranks_cannot_train_is_refused_once(
    ranks: int, words: tuple[str, ...], said: str
) -> None:
    done = mxrun_on(ranks, "train", "net.yaml", *words)
    assert done.returncode == 2
    assert done.stderr.count(said) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("runs").exists()


def test_what_is_missing_for_several_processes_is_named() -> None:
    Path("mpi4py.py").write_text("raise ImportError('planted')\n")
    here = {"PYTHONPATH": str(Path().resolve())}
    done = mxrun("train", "net.yaml", DISTRIBUTED, environment=here)
    assert done.returncode == 2
    assert "pip install 'mxrun[dist]'" in done.stderr


IMAGES = """\
name: images
threads: 1
network:
  inputs: {data: [1, 4, 4], label: []}
  layers: [FullyConnected: {name: fc, num_hidden: 2}, SoftmaxOutput: {name: softmax, label: label}]
data:
  batch_size: 8
  workers: 1
  on_bad_record: skip
  max_bad_records: 8
  train: {dataset: image_folder, path: train, split: all, shuffle: true}
train: {epochs: 2, optimizer: {sgd: {lr: 0.1, momentum: 0.9}}}
"""


@pytest.fixture
def images(empty_folder: Path) -> None:
    """Write 20 images, of which five are damaged."""
    for number in range(20):
        path = Path("train", "ab"[number // 10], f"{number:02}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 12 * number, np.uint8)).save(path)
        if number in (1, 4, 7, 12, 18):
            path.write_bytes(b"no image")
    Path("images.yaml").write_text(IMAGES)


def test_D6_X10_bad_records_are_counted_over_all_ranks(images: None) -> None:
    """And listed in the order of one process; gradients are means over the good ones."""
    succeeded(mxrun("train", "images.yaml", "name=one", "batch_parts=4"))
    done = mxrun_on(2, "train", "images.yaml", "name=two", DISTRIBUTED, "--json")
    assert json.loads(succeeded(done).stdout)["bad_records"]["train"] == 5
    assert results(Path("runs/two")) == results(Path("runs/one"))
    few = mxrun_on(2, "train", "images.yaml", DISTRIBUTED, "data.max_bad_records=4")
    assert few.returncode == 2
    assert few.stderr.count("too many bad records") == 1
    assert few.stderr.count("training has ended") == 1


def test_a_record_that_one_rank_cannot_read_ends_all_at_the_same_step(images: None) -> None:
    done = mxrun_on(4, "train", "images.yaml", DISTRIBUTED, "data.on_bad_record=error")
    assert done.returncode == 2
    assert done.stderr.count(".png") == 1, done.stderr
    assert "training has ended before its first step: nothing was saved" in done.stderr


def test_F5_carried_states_go_on_with_another_number_of_ranks() -> None:
    """They are those of each batch part, and a checkpoint in the middle of an epoch has all."""
    words = ("lstm_tiny", "train.schedule=constant", "train.epochs=null", "threads=1")
    one = ("name=one", "batch_parts=4", "train.max_steps=8")
    succeeded(mxrun("train", *words, *one))
    for ranks, steps in ((4, 3), (2, 8)):
        changed = ("name=many", DISTRIBUTED, f"train.max_steps={steps}")
        succeeded(mxrun_on(ranks, "train", *words, *changed, "--resume"))
    assert results(Path("runs/one")).items() <= results(Path("runs/many")).items()
    carried = newest("many").carried
    assert {array.shape[0] for array in carried.values()} == {4}
    assert all(array[3].any() for array in carried.values())
