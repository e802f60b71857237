"""Implementations whose modules are imported when they are looked up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mxrun.base.device import CPU
from mxrun.base.registry import MODULE, index

DECLARED = index()["implementation"]
SCRIPT = """
import importlib, json, sys
from mxrun.base.device import DeviceDescription
from mxrun.operator.register import implementations
for module in sys.argv[2:]:
    importlib.import_module(module)
device = None if sys.argv[1] == "all" else DeviceDescription(sys.argv[1])
found = {name: list(implementations(name, device)) for name in json.loads(input())}
print(json.dumps([found, [name for name in sys.modules if name.startswith("mxrun.")]]))
"""


def looked_up(family: str, *modules: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return every operator's implementations, and what a new process imports to find them.

    modules: imported before.
    """
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, family, *modules],
        input=json.dumps([*DECLARED]),
        check=True,
        capture_output=True,
        text=True,
    )
    found, imported = json.loads(done.stdout)
    return found, imported


@pytest.mark.parametrize("step", [1, -1])
def test_their_order_is_that_of_the_index_in_whatever_order_modules_are_imported(
    step: int,
) -> None:
    modules = {each[MODULE] for known in DECLARED.values() for each in known.values()}
    found, _ = looked_up("all", *sorted(modules)[::step])
    assert found == {name: [*known] for name, known in DECLARED.items()}


def test_a_processor_imports_nothing_of_cards() -> None:
    found, imported = looked_up(CPU)
    assert found == {
        name: [backend for backend, each in known.items() if CPU in each["devices"]]
        for name, known in DECLARED.items()
    }
    assert [name for name in imported if ".cud" in name] == []
