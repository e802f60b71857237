"""Lifecycle of a helper process, with a small peer that can misbehave on purpose."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from oracles.peer import MXNet, PyTorch

from mxrun.base.errors import InternalError, UserError
from mxrun.peers.process import HelperProcess, worker_command

_MODULE = """
import os
import sys

from mxrun.peers.wire import Message

print("a library greets on import")
REJECTIONS = (ValueError,)


def double(message):
    os.write(1, b"chatter from C\\n")
    print("chatter from Python", flush=True)
    return Message(message.fields, {n: 2 * a for n, a in message.arrays.items()})


def reject(message):
    raise ValueError("this peer knows no such thing")


def fail(message):
    raise KeyError("a defect in the worker")


def leave(message):
    sys.stderr.write("last words")
    sys.stderr.flush()
    os._exit(7)


def modules(message):
    return Message({"loaded": sorted(n for n in sys.modules if n.split(".")[0] == "mxrun")})


HANDLERS = {f.__name__: f for f in (double, reject, fail, leave, modules)}
"""


def _start(module: Path) -> HelperProcess:
    return HelperProcess("small", worker_command(sys.executable, module), {})


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "small_worker.py"
    file.write_text(_MODULE)
    return file


def test_requests_are_answered_despite_chatter_on_standard_output(module):
    with _start(module) as process:
        for size in (3, 300_000):
            array = np.arange(size, dtype=np.float32)
            reply = process.request("double", {"note": size}, {"a": array})
            np.testing.assert_array_equal(reply.arrays["a"], 2 * array)
            assert reply.fields["note"] == size


def test_a_rejection_is_the_users_error_and_the_process_goes_on(module):
    with _start(module) as process:
        with pytest.raises(UserError, match="ValueError: this peer knows no such thing"):
            process.request("reject", {}, {})
        assert process.request("double", {}, {}).arrays == {}


@pytest.mark.parametrize(
    ("request_name", "words"),
    [
        ("fail", "status 1 during 'fail'[\\s\\S]*a defect in the worker"),
        ("leave", "status 7 during 'leave':\nlast words|status 7[\\s\\S]*last words"),
        ("unheard_of", "status 1 during 'unheard_of'[\\s\\S]*KeyError: 'unheard_of'"),
    ],
)
def test_a_process_that_ends_tells_how(module, request_name, words):
    with _start(module) as process:
        with pytest.raises(InternalError, match=words):
            process.request(request_name, {}, {})
        with pytest.raises(InternalError, match="has been closed"):
            process.request("double", {}, {})


def test_a_module_that_cannot_be_imported_tells_why(tmp_path):
    file = tmp_path / "broken_worker.py"
    file.write_text("import no_such_library\n")
    with (
        _start(file) as process,
        pytest.raises(InternalError, match="No module named 'no_such_library'"),
    ):
        process.request("double", {}, {})


def test_the_process_ends_when_its_input_does(module):
    process = _start(module)
    assert process.close() == 0
    assert process.close() == 0


def test_the_worker_runs_without_mxrun(module):
    with _start(module) as process:
        assert process.request("modules", {}, {}).fields["loaded"] == [
            "mxrun",
            "mxrun.peers",
            "mxrun.peers.small_worker",
            "mxrun.peers.wire",
        ]


def test_the_environment_is_added_to_and_taken_from(monkeypatch, tmp_path):
    file = tmp_path / "surroundings_worker.py"
    file.write_text(
        "import os\n"
        "from mxrun.peers.wire import Message\n"
        "REJECTIONS = ()\n"
        "def tell(message):\n"
        "    return Message({name: os.environ.get(name) for name in message.fields['names']})\n"
        "HANDLERS = {'tell': tell}\n"
    )
    monkeypatch.setenv("MXRUN_KEPT", "kept")
    monkeypatch.setenv("MXRUN_TAKEN", "taken")
    environment = {"MXRUN_TAKEN": None, "MXRUN_ADDED": "added"}
    command = worker_command(sys.executable, file)
    names = ["MXRUN_KEPT", "MXRUN_TAKEN", "MXRUN_ADDED"]
    with HelperProcess("small", command, environment) as process:
        told = process.request("tell", {"names": names}, {}).fields
    assert told == {"MXRUN_KEPT": "kept", "MXRUN_TAKEN": None, "MXRUN_ADDED": "added"}


def test_an_interpreter_that_does_not_start_is_the_users_error(module, tmp_path):
    with pytest.raises(UserError, match="cannot start the peer small"):
        HelperProcess("small", [str(tmp_path / "no-python")], {})


def test_a_full_disk_for_temporary_files_is_the_users_error(module, tmp_path, monkeypatch):
    # As on a full disk, there is no folder in which a file can be made.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(UserError, match="cannot start the peer small"):
        HelperProcess("small", worker_command(sys.executable, module), {})


def test_a_peer_without_interpreter_gives_its_reason(monkeypatch):
    monkeypatch.delenv("MXRUN_MXNET_PYTHON", raising=False)
    assert MXNet.unavailable() == "MXRUN_MXNET_PYTHON does not name a Python that has MXNet"
    with pytest.raises(UserError, match="does not name a Python"):
        MXNet()
    monkeypatch.setenv("MXRUN_TORCH_PYTHON", "/nowhere/python")
    assert PyTorch.unavailable() == (
        "MXRUN_TORCH_PYTHON names /nowhere/python, which is not an executable"
    )
