"""Index of the names whose modules are imported on demand; run this file to write it.

The pages of the reference, which show the names, are written then.

python tests/support/registry_index.py
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mxrun.base import registry

COMMAND = "python tests/support/registry_index.py"
# Packages whose modules are imported when one of their names is looked up.
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
    registry.index = dict  # type: ignore[assignment]
    for package in PACKAGES:
        folder = importlib.import_module(package).__path__
        for module in sorted(each.name for each in pkgutil.iter_modules(folder)):
            importlib.import_module(f"{package}.{module}")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for each in registry.Registry._all:
        for name in each:
            entry = each.get(name)
            module = getattr(entry, "read", entry).__module__
            if module.rpartition(".")[0] in PACKAGES:
                attributes = {registry.MODULE: module, **each._attributes[name]}
                found.setdefault(each.kind, {})[name] = attributes
    return found


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
