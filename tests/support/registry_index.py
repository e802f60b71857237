"""Index of the names whose modules are imported on demand; run this file to write it.

The pages of the reference, which show the names, are written then.

python tests/support/registry_index.py
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mxrun.base import registry
from mxrun.base.registry import Registry

COMMAND = "python tests/support/registry_index.py"
# Packages whose modules are imported when one of their names is looked up, beside the operators.
PACKAGES = ("mxrun.cli", "mxrun.datasets", "mxrun.io.transforms", "mxrun.train")


def registry_index() -> str:
    """Return the text of the index: by kind and name, the module and the attributes.

    The modules are imported by a process that knows no index, which may be of other names.
    """
    done = subprocess.run(
        [sys.executable, __file__, "--print"], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def _found() -> dict[str, dict[str, dict[str, Any]]]:
    modules = _registering_modules()
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for each in Registry._all:
        for name, module in sorted(modules.get(each.kind, {}).items()):
            attributes = {registry.MODULE: module, **each._attributes[name]}
            if aliases := each.aliases(name):
                attributes[registry._ALIASES] = aliases
            found.setdefault(each.kind, {})[name] = attributes
    return {**found, "implementation": _implementations(modules["implementation"])}


def _registering_modules() -> dict[str, dict[str, str]]:
    """Import the modules; return the one that registers each name, by kind and name.

    An implementation has the name `OPERATOR BACKEND`.
    """
    # Its importers must not see the index either.
    registry.index = dict  # type: ignore[assignment]
    modules: dict[str, dict[str, str]] = {}
    add, put = Registry.add, Registry.put

    def added(self: Registry[Any], name: str, *values: Any, **attributes: Any) -> None:
        modules.setdefault(self.kind, {})[name] = _importing()
        add(self, name, *values, **attributes)

    def replaced(self: Registry[Any], name: str, entry: Any) -> None:
        for backend in entry:
            modules.setdefault("implementation", {}).setdefault(f"{name} {backend}", _importing())
        put(self, name, entry)

    Registry.add, Registry.put = added, replaced  # type: ignore[method-assign]
    for package in PACKAGES:
        folder = importlib.import_module(package).__path__
        for module in sorted(each.name for each in pkgutil.iter_modules(folder)):
            importlib.import_module(f"{package}.{module}")
    importlib.import_module("mxrun.library").load()
    listed = (*PACKAGES, "mxrun.ops")
    return {
        kind: {name: module for name, module in names.items() if module.startswith(listed)}
        for kind, names in modules.items()
    }


def _importing() -> str:
    """Return the name of the module whose import registers something."""
    frame = inspect.currentframe()
    while frame is not None and (
        frame.f_code.co_name != "<module>" or not frame.f_globals["__name__"].startswith("mxrun.")
    ):
        frame = frame.f_back
    assert frame is not None
    return str(frame.f_globals["__name__"])


def _implementations(modules: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the modules and devices of implementations by operator and backend, best first."""
    from mxrun.operator import register

    return {
        operator: {
            backend: {
                registry.MODULE: modules[f"{operator} {backend}"],
                "devices": sorted(each.devices),
            }
            for backend, each in register.implementations(operator).items()
        }
        for operator in sorted(register._IMPLEMENTATIONS)
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        kinds = [
            f"{json.dumps(kind)}: {{\n"
            + ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in names.items())
            + "\n}"
            for kind, names in sorted(_found().items())
        ]
        print("{\n" + ",\n".join(kinds) + "\n}")
    else:
        registry.INDEX.write_text(registry_index(), encoding="utf-8")
        pages = Path(__file__).with_name("reference_pages.py")
        subprocess.run([sys.executable, pages], check=True)
