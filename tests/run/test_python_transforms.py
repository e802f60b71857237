"""A user's own transforms on threads and in processes: the same bits, whatever the processes do."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import make_slots
from commands import HANG_S, MXRUN, mxrun, refused, succeeded
from layer_configs import config_file
from registries import loaded_plugin

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.bad_records import BadRecords
from mxrun.io.loading.iterator import RecordError
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.process_transforms import ProcessTransforms
from mxrun.io.loading.python_transforms import ThreadTransforms, TimedTransforms, TransformRunner
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline
from mxrun.run.transform_process import command

PLUGIN = '''
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
from pydantic import Field

from mxrun.io.transforms.base import Transform, register


@register("test_faulty")
class Faulty(Transform):
    """Adds noise; fails as `fault` says at the record that begins with `at`, in `folder`."""

    fault: str = Field(default="", description="The fault.")
    at: int = Field(default=7, description="The record.")
    always: bool = Field(default=False, description="Whether it fails every time.")
    folder: str = Field(default="", description="The folder of marks.")

    def apply(self, record, draw):
        if self.fault and record[0] == self.at:
            mark = Path(self.folder) / "began"
            if self.always or not mark.exists():
                with (mark.parent / "tries").open("a") as tries:
                    tries.write("x")
                (mark.parent / "new").write_text(str(os.getpid()))
                (mark.parent / "new").rename(mark)
                self.fail()
        return (record + draw(record.shape)).astype(np.float32)

    def fail(self):
        if self.fault == "search":
            re.match("(a+)+$", 60 * "a" + "b")
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "raise":
            raise ValueError("no such number")
        while True:
            time.sleep(60)


@register("test_held_lock")
class HeldLock(Transform):
    """Holds the interpreter lock for milliseconds."""

    def apply(self, record, draw):
        total = 0
        for number in range(100_000):
            total += number
        return record


@register("test_released_lock")
class ReleasedLock(Transform):
    """Waits without the interpreter lock and without a core."""

    def apply(self, record, draw):
        time.sleep(0.002)
        return record
'''
COUNT, SIZE, WIDTH = 23, 5, 4


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[library.Plugin]:
    with loaded_plugin(tmp_path_factory.mktemp("plugin") / "own.py", PLUGIN) as loaded:
        yield loaded


def dataset(name: str = "test_faulty", **parameters: Any) -> Dataset:
    """Records of which the first number is the record's own."""
    records = np.arange(COUNT * WIDTH, dtype=np.float32).reshape(COUNT, WIDTH)
    records[:, 0] = np.arange(COUNT)
    transform = TRANSFORMS.get(name).model_validate(parameters)
    inputs = {"data": TensorSpec((WIDTH,))}
    steps = pipeline([(transform, None)])
    return Dataset("numbers", {"data": Field(records)}, pipeline=steps, inputs=inputs)


def batches(
    data: Dataset, python: TransformRunner, workers: int = 2, first: int = 0, **options: Any
) -> list[tuple[Any, ...]]:
    specs = staging_specs(data.inputs, SIZE)
    staging = [{name: np.zeros(s.shape, s.dtype) for name, s in specs.items()} for _ in range(2)]
    iterator = open_iterator(
        data,
        SIZE,
        shuffle=True,
        seed=5,
        workers=workers,
        staging=Staging(staging),
        python=python,
        **options,
    )
    with closing(iterator):
        slots, found = make_slots(iterator), []
        iterator.reset(2, first)
        while (batch := iterator.next_into(slots)) is not None:
            valid = batch.valid
            rows = slots["data"][:valid].tobytes(), slots["sample_weight"].tobytes()
            found.append((valid, batch.indices[:valid].tolist(), rows))
    return found


@pytest.fixture
def processes(plugin: library.Plugin) -> Iterator[ProcessTransforms]:
    # A busy machine may take long for a record; it is then tried again.
    with closing(ProcessTransforms(command([plugin]), timeout=HANG_S)) as opened:
        yield opened
    for identifier in opened.processes:
        assert not is_running(identifier)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    # The second: it ends while the file is read.
    except (FileNotFoundError, ProcessLookupError):
        return False
    # One that has ended and is not yet awaited.
    return state != "Z"


def wait_until_gone(process: int) -> None:
    deadline = time.monotonic() + HANG_S
    while is_running(process):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_same_rows_from_threads_and_processes(processes):
    data = dataset()
    expected = batches(data, ThreadTransforms(), 1)
    assert sum(batch[0] for batch in expected) == COUNT
    for workers in (0, 2, 4, 8):
        assert batches(data, ThreadTransforms(), workers) == expected
    for workers in (0, 1, 2, 4, 8):
        assert batches(data, processes, workers) == expected
        assert batches(data, processes, workers, first=2) == expected[2:]
    assert processes.replaced == 0
    assert len(processes.processes) <= 8


@pytest.mark.parametrize("fault", ["kill", "raise", "hang"])
def test_a_record_is_tried_again_after_a_fault(processes, plugin, tmp_path, fault):
    """The process ends, its transform raises, or it takes too long; nothing of that is seen."""
    data = dataset(fault=fault, folder=str(tmp_path))
    expected = batches(dataset(), ThreadTransforms())
    if fault == "hang":
        processes = ProcessTransforms(command([plugin]), timeout=2.0)
    with closing(processes):
        assert batches(data, processes) == expected
        assert (tmp_path / "began").exists()
        assert fault == "raise" or processes.replaced >= 1


def test_a_process_that_is_killed_from_outside_is_replaced(processes, tmp_path):
    data = dataset(fault="wait", folder=str(tmp_path))
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + HANG_S
        while not (tmp_path / "began").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        killed.append(int((tmp_path / "began").read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert batches(data, processes) == batches(dataset(), ThreadTransforms())
    killer.join()
    assert processes.replaced == 1
    assert killed[0] not in processes.processes


@pytest.mark.parametrize(("fault", "reason"), [("kill", "signal 9"), ("raise", "no such number")])
def test_D6_the_third_failure_names_the_record(processes, tmp_path, fault, reason):
    data = dataset(fault=fault, folder=str(tmp_path), always=True)
    with pytest.raises(RecordError, match="record 7 of data set 'numbers'") as caught:
        batches(data, processes)
    assert reason in caught.value.diagnostics[0].problem
    assert "test_faulty" in caught.value.diagnostics[0].problem
    assert (tmp_path / "tries").read_text() == "xxx"
    bad = BadRecords.of(data, None)
    found = batches(data, processes, bad_records=bad)
    assert [each.record for each in bad.found] == [7]
    assert reason in bad.found[0].reason
    # All other records are as ever.
    good = sorted(record for batch in found for record in batch[1])
    assert good == [record for record in range(COUNT) if record != 7]
    expected = {
        record: row
        for _, records, rows in batches(dataset(), ThreadTransforms())
        for record, row in zip(records, np.frombuffer(rows[0]).reshape(-1, 2).tolist(), strict=True)
    }
    for _, records, rows in found:
        rows = np.frombuffer(rows[0]).reshape(-1, 2).tolist()
        assert [expected[record] for record in records] == rows
    if fault == "raise":
        # Threads give the same error.
        with pytest.raises(RecordError, match="no such number") as on_thread:
            batches(data, ThreadTransforms())
        assert on_thread.value.diagnostics == caught.value.diagnostics


def test_transforms_that_hold_the_lock_get_processes(processes):
    timed = TimedTransforms(lambda: processes)
    assert batches(dataset("test_held_lock"), timed) == batches(
        dataset("test_held_lock"), ThreadTransforms()
    )
    assert timed.kind == "process"
    timed = TimedTransforms(lambda: processes)
    batches(dataset("test_released_lock"), timed)
    assert timed.kind == "thread"


def test_a_plugin_that_has_changed_is_refused(plugin, tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_PLUGINS", {})
    path = tmp_path / "changing.py"
    path.write_text("x = 1\n")
    loaded = library.load_plugin(str(path))
    path.write_text("x = 2\n")
    with closing(ProcessTransforms(command([loaded]), 60.0)) as opened:
        with pytest.raises(UserError, match="has changed since the run loaded it"):
            batches(dataset(), opened)
        assert opened.processes == []


PARENT = """
import sys
sys.path[:0] = {tests!r}
import test_python_transforms as tests
from mxrun import library
plugin = library.load_plugin({plugin!r})
transforms = tests.ProcessTransforms(tests.command([plugin]), 600.0)
tests.batches(tests.dataset(fault={fault!r}, folder={folder!r}), transforms)
"""


@pytest.mark.parametrize("fault", ["wait", "search"])
def test_processes_end_with_a_run_that_is_killed(plugin, tmp_path, fault):
    """Even within a transform that never returns, with or without the interpreter lock."""
    tests = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    script = PARENT.format(tests=tests, plugin=plugin.path, folder=str(tmp_path), fault=fault)
    with subprocess.Popen([sys.executable, "-c", script]) as run:
        deadline = time.monotonic() + HANG_S
        while not (tmp_path / "began").exists():
            assert run.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        run.kill()
    wait_until_gone(int((tmp_path / "began").read_text()))


CONFIG = """\
name: net
threads: 1
plugins: [own.py]
network:
  inputs: {data: [4], label: []}
  layers:
    - FullyConnected: {num_hidden: 2}
    - SoftmaxOutput: {label: label}
data:
  batch_size: 4
  workers: 2
  worker_kind: process
  train: {dataset: csv, path: rows.csv, transforms: [{test_faulty: {at: 99}}]}
train: {epochs: 2, optimizer: sgd}
"""


@pytest.fixture
def config(empty_folder: Path) -> Path:
    Path("own.py").write_text(PLUGIN)
    rows = [f"{number},1,2,3,{number % 2}" for number in range(20)]
    Path("rows.csv").write_text("\n".join(rows))
    return config_file(Path(), CONFIG)


def final(folder: str) -> dict[str, bytes]:
    found = sorted(Path(folder).glob("checkpoint-*"))[-1]
    return {path.name: path.read_bytes() for path in found.glob("*.safetensors")}


def test_a_run_is_the_same_in_processes(config):
    runs = {}
    for kind in ("process", "thread"):
        words = (f"data.worker_kind={kind}", f"name={kind}", "--json")
        summary = json.loads(succeeded(mxrun("train", str(config), *words)).stdout)
        assert summary["python_transforms"] == kind
        runs[kind] = final(f"runs/{kind}")
    assert runs["process"] == runs["thread"]


def test_ctrl_c_leaves_no_process_behind(config):
    words = ("data.train.transforms=[{test_faulty: {at: 9, fault: wait, folder: .}}]",)
    run = subprocess.Popen([*MXRUN, "train", str(config), *words], start_new_session=True)
    deadline = time.monotonic() + HANG_S
    while not Path("began").exists():
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # As a terminal does: to all processes of the group.
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(HANG_S) in (75, 130)
    wait_until_gone(int(Path("began").read_text()))


def test_a_transform_that_no_file_defines_cannot_run_in_a_process(config):
    Path("program.py").write_text(
        "import mxrun\nfrom mxrun.io.transforms.base import Transform, register\n"
        "@register('test_unnamed')\nclass Unnamed(Transform):\n"
        "    'Leaves records unchanged.'\n"
        "    def apply(self, record, draw):\n        return record\n"
        "try:\n"
        "    mxrun.load('net.yaml', {'data.train.transforms': ['test_unnamed']}).fit()\n"
        "except mxrun.UserError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, check=True
    )
    assert "test_unnamed cannot run in a process: no plugin file defines it" in done.stdout
    assert "data.worker_timeout" in refused("train", str(config), "data.worker_timeout=0")


def test_processes_that_cannot_be_started_are_an_error(plugin, tmp_path):
    missing = str(tmp_path / "missing")
    ending = [sys.executable, "-c", "raise SystemExit(3)"]
    for words, reason in (([missing], "No such file"), (ending, "it has ended")):
        with closing(ProcessTransforms(words, 60.0)) as opened:
            with pytest.raises(UserError, match="cannot be started") as caught:
                batches(dataset(), opened)
            assert reason in str(caught.value)


def test_memory_and_connections_are_closed(plugin):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    # Files that only garbage of earlier tests holds would be closed at any time.
    gc.collect()
    before = descriptors()
    for _ in range(2):
        with closing(ProcessTransforms(command([plugin]), HANG_S)) as opened:
            batches(dataset(), opened)
    assert descriptors() == before
