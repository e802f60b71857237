"""Loops on the host, of loading, planning and metrics, compile for other processors."""

from __future__ import annotations

import importlib
from pathlib import Path

import llvmlite.binding as llvm
import pytest

import mxrun
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.sequential import compiler

ROOT = Path(mxrun.__file__).parent
# Numbers of processors in the header of an ELF object.
AARCH64 = 183


def host_loops() -> list[NativeFunction]:
    """Return the native functions outside of the operators and of the devices."""
    names = [
        ".".join(("mxrun", *path.relative_to(ROOT).with_suffix("").parts))
        for room in ("io", "planner", "train")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "@native" in path.read_text()
    ]
    return [
        each
        for name in names
        for each in vars(importlib.import_module(name)).values()
        if isinstance(each, NativeFunction)
    ]


def test_loops_compile_for_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    machine = target.create_target_machine(opt=3, reloc="default", codemodel="jitdefault")
    monkeypatch.setattr(compiler, "target_machine", lambda *options: machine)
    loops = host_loops()
    assert len(loops) > 15
    for loop in loops:
        compiled = compiler.compile_function("loop", loop.source)
        assert int.from_bytes(compiled.code[18:20], "little") == AARCH64, loop.body.__name__
