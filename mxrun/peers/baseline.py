"""Baselines of `bench --against`: the known kinds, their installations and their processes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxrun.base.child_python import run_code
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.foreign_names import hint_for
from mxrun.base.near_names import nearest
from mxrun.peers.process import HelperProcess, worker_command
from mxrun.peers.wire import Array, group, prefixed

_LAYOUTS = ("", " channels-last")
_EXECUTOR = ("executor",)


@dataclass(frozen=True)
class BaselineKind:
    """A peer framework: its package, its worker module, and its modes of execution.

    train, infer: modes by precision. reads: format of the network, `symbol` or `onnx`. has_cards:
    whether it is compared on cards.
    """

    package: str
    worker: str
    train: Mapping[str, tuple[str, ...]]
    infer: Mapping[str, tuple[str, ...]]
    reads: str = "symbol"
    has_cards: bool = False

    def modes(self, phase: str, precision: str, images: bool) -> tuple[str, ...]:
        """Return the modes that run a phase; empty if unsupported.

        The channels-last modes are included only if the network has image inputs.
        """
        modes = (self.train if phase == "train" else self.infer).get(precision, ())
        return modes if images else tuple(mode for mode in modes if not mode.endswith(_LAYOUTS[1]))

    def refusal(self, phase: str, precision: str) -> str:
        """Return why the phase is unsupported in this precision; empty if it is supported."""
        if self.modes(phase, precision, images=True):
            return ""
        if phase == "train" and self.infer.get(precision):
            return "runs inference only: use --phase infer"
        return f"does not run {precision} on the CPU: use precision={FLOAT32}"


def _both_layouts(*modes: str) -> tuple[str, ...]:
    return tuple(f"{mode}{layout}" for mode in modes for layout in _LAYOUTS)


# Two forms of bfloat16: autocast, where the peer converts the inputs of suitable operators; or a
# network whose parameters and activations are all bfloat16.
KINDS: Mapping[str, BaselineKind] = {
    "torch": BaselineKind(
        "torch",
        "pytorch_worker.py",
        {FLOAT32: _both_layouts("eager"), BFLOAT16: _both_layouts("eager autocast-bfloat16")},
        {
            FLOAT32: _both_layouts("eager", "frozen"),
            BFLOAT16: _both_layouts("eager autocast-bfloat16", "eager bfloat16", "frozen bfloat16"),
        },
        has_cards=True,
    ),
    "torch-compile": BaselineKind(
        "torch",
        "pytorch_worker.py",
        {FLOAT32: _both_layouts("compile"), BFLOAT16: _both_layouts("compile autocast-bfloat16")},
        {FLOAT32: _both_layouts("compile"), BFLOAT16: _both_layouts("compile bfloat16")},
        has_cards=True,
    ),
    "mxnet": BaselineKind("mxnet", "mxnet_worker.py", {FLOAT32: _EXECUTOR}, {FLOAT32: _EXECUTOR}),
    "onnxruntime": BaselineKind(
        "onnxruntime", "onnxruntime_worker.py", {}, {FLOAT32: ("session",)}, "onnx"
    ),
    "openvino": BaselineKind(
        "openvino",
        "openvino_worker.py",
        {},
        {FLOAT32: ("compiled",), BFLOAT16: ("compiled bfloat16",)},
        "onnx",
    ),
}


@dataclass(frozen=True)
class InstalledBaseline:
    """Python interpreter that has a baseline installed, or the reason why it cannot be used."""

    name: str
    python: str
    missing: str = ""

    @property
    def kind(self) -> BaselineKind:
        """Kind of the baseline."""
        return KINDS[self.name]


def find(names: Sequence[str], pythons: Mapping[str, str]) -> tuple[InstalledBaseline, ...]:
    """Find baselines in the given interpreters, by baseline or package name, else in this one.

    Raises UserError for unknown baselines, for an interpreter that does not exist, and if none of
    the baselines is installed.
    """
    packages = {kind.package for kind in KINDS.values()}
    problems = [
        Diagnostic(
            f"unknown baseline {name!r}",
            expected=", ".join(KINDS),
            hint=hint_for("baseline", name) or nearest(name, KINDS),
        )
        for name in (*names, *(name for name in pythons if name not in packages))
        if name not in KINDS
    ]
    problems += [
        Diagnostic(
            f"--peer-python {name}={path}: there is no such program",
            hint="name the Python of the environment that has the peer",
        )
        for name, path in pythons.items()
        if shutil.which(path) is None
    ]
    used = {*names, *(KINDS[name].package for name in names if name in KINDS)}
    problems += [
        Diagnostic(
            f"--peer-python is given for {name}, which --against does not name",
            hint=f"write --against {','.join((*names, name))}",
        )
        for name in pythons
        if name not in used and (name in KINDS or name in packages)
    ]
    if problems:
        raise UserError(problems)
    found = tuple(_find(name, pythons) for name in dict.fromkeys(names))
    if found and all(peer.missing for peer in found):
        raise UserError(Diagnostic(f"{p.name}: {p.missing}") for p in found)
    return found


def _find(name: str, pythons: Mapping[str, str]) -> InstalledBaseline:
    package = KINDS[name].package
    path = pythons.get(name, pythons.get(package))
    if path is None:
        if importlib.util.find_spec(package) is not None:
            return InstalledBaseline(name, sys.executable)
        hint = f"give --peer-python {package}=PATH"
        return InstalledBaseline(name, sys.executable, f"not installed in {sys.executable}: {hint}")
    python = shutil.which(path) or path
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    try:
        check = subprocess.run(
            run_code(script, package, python=python), capture_output=True, check=False
        )
    except OSError as error:
        return InstalledBaseline(name, python, f"{python} does not start: {error}")
    return InstalledBaseline(name, python, f"not installed in {python}" if check.returncode else "")


@dataclass(frozen=True)
class Comparison:
    """Task that every runner of a benchmark executes, see `mxrun.peers.benchmark_server.Task`."""

    symbol: str
    phase: str
    updates: Mapping[str, Any] = field(default_factory=dict)
    rate: float = 0.0
    threads: int = 1
    max_norm: float | None = None
    device: str = "cpu"


class BaselineProcess:
    """Helper process of a baseline, in which one runner at a time is open.

    Methods raise UserError with the peer's message if it rejects a request, and InternalError if
    its process ends.
    """

    def __init__(self, found: InstalledBaseline, threads: int) -> None:
        self.name = found.name
        environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        command = worker_command(found.python, Path(__file__).with_name(found.kind.worker))
        self._process = HelperProcess(found.name, command, environment)
        self.version = str(self._process.request("version", {}, {}).fields["version"])

    def open(
        self,
        comparison: Comparison,
        mode: str,
        variables: Mapping[str, Array],
        batches: Mapping[str, Array],
    ) -> None:
        """Create the runner that runs the comparison in one mode; it replaces the open one.

        variables: initial values. batches: stacked along a first axis.
        """
        arrays = {**prefixed("variables", variables), **prefixed("batches", batches)}
        self._process.request("open", {**vars(comparison), "mode": mode}, arrays)

    def losses(self, steps: int) -> list[float]:
        """Run training steps and return their losses."""
        reply = self._process.request("check", {"steps": steps}, {})
        losses: list[float] = reply.fields["losses"]
        return losses

    def outputs(self, steps: int) -> list[list[Array]]:
        """Run inference steps and return all outputs of each."""
        arrays = self._process.request("check", {"steps": steps}, {}).arrays
        return [list(group(arrays, str(step)).values()) for step in range(steps)]

    def measure_round(self, steps: int, lead: int) -> list[float]:
        """Run one round: `lead` untimed and `steps` timed steps; return their milliseconds."""
        fields = {"steps": steps, "lead": lead}
        times: list[float] = self._process.request("measure", fields, {}).fields["milliseconds"]
        return times

    def peak_rss_bytes(self) -> int:
        """Return the peak resident size of the process in bytes."""
        return int(self._process.request("memory", {}, {}).fields["peak_bytes"])

    def close(self) -> None:
        """End the process."""
        self._process.close()
