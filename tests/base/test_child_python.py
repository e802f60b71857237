"""Child interpreters: nothing in the working folder stands in for a module of Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import HANG_S

from mxrun.base.child_python import run_code, run_script
from mxrun.peers.baseline import find
from mxrun.peers.process import HelperProcess, worker_command

SCRIPT = str(Path(sys.executable).with_name("mxrun"))
# Python loads these before it knows the working folder.
BUILT_IN = {*sys.builtin_module_names, "antigravity", "this"}
TRANSFORM = """\
import numpy as np
from mxrun.io.transforms.base import Transform, register

@register("test_child_half")
class Half(Transform):
    "Halves the values."
    def apply(self, record, draw):
        return record * np.float32(0.5)
"""
CONFIG = """\
name: net
plugins: [own.py]
network:
  inputs: {data: [4], label: []}
  layers: [{FullyConnected: {num_hidden: 2}}, {SoftmaxOutput: {label: label}}]
data:
  batch_size: 4
  workers: 2
  worker_kind: process
  train: {dataset: csv, path: rows.csv, transforms: [test_child_half]}
train: {epochs: 1, optimizer: sgd}
"""
JOBS = """\
jobs:
  - name: job
    python: |
      from __future__ import annotations
      import json, re, sys
      import beside
      assert "json" in sys.modules and sys.argv == ["-c"] and __name__ == "__main__"
      print(json.dumps(beside.VALUE))
"""


@pytest.fixture
def hostile(empty_folder: Path) -> Path:
    """Return the working folder, where each name of a module of Python is a file that is noted."""
    note = f"open({str(empty_folder / 'executed')!r}, 'a').write(__name__)\n"
    for name in sys.stdlib_module_names - BUILT_IN:
        (empty_folder / f"{name}.py").write_text(note)
    return empty_folder


def run(command: list[str]) -> str:
    """Return the standard output of a command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def executed(folder: Path) -> str:
    """Return the names of the modules of a hostile folder that were imported."""
    found = folder / "executed"
    return found.read_text() if found.exists() else ""


def test_the_fixture_detects_imports_of_the_working_folder(hostile: Path) -> None:
    subprocess.run([sys.executable, "-c", "import json"], capture_output=True, check=False)
    assert "json" in executed(hostile)


@pytest.mark.full
def test_processes_of_transforms_import_nothing_of_the_working_folder(hostile: Path) -> None:
    Path("own.py").write_text(TRANSFORM)
    Path("rows.csv").write_text("".join(f"{i},1,2,3,{i % 2}\n" for i in range(12)))
    Path("net.yaml").write_text(CONFIG)
    summary = json.loads(run([SCRIPT, "train", "net.yaml", "--json"]))
    assert summary["python_transforms"] == "process"
    assert not executed(hostile)


def test_jobs_import_modules_beside_their_file_but_none_in_place_of_pythons(hostile: Path) -> None:
    Path("beside.py").write_text("VALUE = 7\n")
    Path("jobs.yaml").write_text(JOBS)
    report = json.loads(run([SCRIPT, "engine", "jobs.yaml", "--json"]))
    assert report["exit_code"] == 0
    assert not executed(hostile)


def test_looking_for_a_peer_and_its_process_import_nothing_of_the_working_folder(
    hostile: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Not installed, but there is a file of that name.
    Path("mxnet.py").touch()
    bare = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", bare], check=True)
    python = str(bare / "bin" / "python")
    with pytest.raises(Exception, match=f"mxnet: not installed in {python}"):
        find(["mxnet"], {"mxnet": python})
    module = bare / "echo_worker.py"
    module.write_text(
        "import json\n\nfrom mxrun.peers.wire import Message\n"
        "HANDLERS = {'say': lambda message: Message({'words': json.dumps(1)}, {})}\n"
        "REJECTIONS = ()\n"
    )
    with HelperProcess("echo", worker_command(sys.executable, module), {}) as process:
        assert process.request("say", {}, {}).fields["words"] == "1"
    assert not executed(hostile)


@pytest.mark.full
def test_the_module_as_a_command_imports_nothing_of_the_working_folder(empty_folder: Path) -> None:
    # Imported by the interpreter itself before mxrun: runpy, pkgutil and what they import.
    for name in ("json", "typer", "numpy", "yaml"):
        Path(f"{name}.py").write_text("open('executed', 'w')\n")
    assert "digits_lenet" in run([sys.executable, "-m", "mxrun", "check", "digits_lenet"])
    assert not executed(empty_folder)


def test_code_has_the_arguments_and_the_folders_that_it_is_given(tmp_path: Path) -> None:
    shown = "import json, sys; json.dump([sys.path, sys.argv, '__file__' in globals()], sys.stdout)"
    plain = [sys.executable, "-c", shown, "a", "b c"]
    for beside, last in ((None, []), (tmp_path, [str(tmp_path)])):
        path, arguments, has_file = json.loads(run(run_code(shown, "a", "b c", beside=beside)))
        own, same, _ = json.loads(run(plain))
        assert own[0] == ""
        assert path == own[1:] + last
        assert (arguments, has_file) == (same, False)


def test_no_script_is_beside_a_module_with_a_name_of_pythons() -> None:
    for script in (run_code("")[2], worker_command("python", Path("x.py"))[1]):
        assert os.path.isfile(script)
        names = {path.stem for path in Path(script).parent.iterdir()}
        assert not names & sys.stdlib_module_names
    assert run_script(Path("a.py"), "b", python="p") == ["p", "a.py", "b"]
