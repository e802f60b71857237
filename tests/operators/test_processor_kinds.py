"""Every operator's calls, and training, on each kind of processor that the machine can be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import mxrun, python_output, result
from processors import kinds

from mxrun.codegen.processor import KINDS, lacks
from mxrun.device.cpu.onednn import library

SUPPORT = Path(__file__).parents[1] / "support"
# The first case of each operator: calls with guarded tensors, gradients, and the results of all
# implementations.
CALLS = f"""
import json, sys
sys.path[:0] = [{str(SUPPORT)!r}, {str(SUPPORT / "families")!r}]
from contract_cases import ROWS, case_of
from mxrun.contract.case import CaseRunner
from mxrun.contract.check import CHECKS
from mxrun.device.cpu.onednn import library

first = {{}}
for row in ROWS:
    first.setdefault(row.operator, row)
runners = [CaseRunner(case_of(row)) for row in first.values()]
checked = [each for each in CHECKS if each.name in ("calls", "gradients", "implementations")]
problems = [str(problem) for each in checked for problem in each.problems(runners)]
loaded = library.load()
print(json.dumps([len(first), problems, loaded and loaded.instruction_set]))
"""
# What oneDNN calls the instructions of each kind.
ONEDNN = {"x86-64": "sse41", "avx2": "avx2", "avx512": "avx512_core", "amx": "amx"}


def environment(processor: str) -> dict[str, str]:
    return {**os.environ, "MXRUN_PROCESSOR": processor}


@pytest.mark.full
@kinds()
def test_every_operator_keeps_its_contract(processor: str) -> None:
    output = python_output("-c", CALLS, env=environment(processor))
    operators, problems, instructions = json.loads(output.splitlines()[-1])
    assert operators > 150
    assert problems == []
    if library.load() is not None:
        assert instructions.startswith(ONEDNN[processor])


@pytest.mark.full
@kinds()
@pytest.mark.parametrize(("config", "loss"), [("digits_lenet", 2.0), ("gpt_tiny", 3.0)])
def test_networks_train(config: str, loss: float, processor: str, empty_folder: Path) -> None:
    arguments = ("train", config, "train.epochs=1")
    found = result(*arguments, cwd=empty_folder, environment=environment(processor))
    assert found["eval"]["loss"] < loss


@pytest.mark.parametrize(
    "command", [("train", "digits_lenet"), ("check", "digits_lenet"), ("ops",)]
)
def test_an_unknown_kind_is_refused(command: tuple[str, ...], empty_folder: Path) -> None:
    done = mxrun(*command, environment=environment("386"))
    assert done.returncode == 2
    assert "MXRUN_PROCESSOR names no kind of processor" in done.stderr
    assert ", ".join(KINDS) in done.stderr


@pytest.mark.skipif(bool(lacks("avx2")), reason="the processor has no AVX2")
def test_a_run_is_not_resumed_on_another_kind(
    monkeypatch: pytest.MonkeyPatch, empty_folder: Path
) -> None:
    # Without oneDNN, and likewise where it is limited, its instructions do not tell the kinds.
    monkeypatch.setenv("MXRUN_ONEDNN_LIBRARY", "/nonexistent")
    words = ("train", "mlp_mnist", "name=run")
    result(*words, "train.max_steps=2", cwd=empty_folder, environment=environment("avx2"))
    resumed = (*words, "train.max_steps=3", "--resume")
    done = mxrun(*resumed, cwd=empty_folder, environment=environment("x86-64"))
    assert done.returncode == 2
    assert "kernel library: none, loops for avx2 then, none, loops for x86-64 now" in done.stderr
