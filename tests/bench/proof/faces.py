"""Programs that use public names alone: the SHA-256 of their arrays, and what their errors say."""

from __future__ import annotations

import json
import shutil

from proof.batches import program
from proof.installation import Facts, Installation
from proof.part import Part

# Each is the program `face_NAME.py`.
_NAMES = ("operators", "arrays", "symbols", "updates", "models")


def facts_of(mxrun: Installation, name: str) -> Facts:
    """Run one program in an empty folder and return its facts."""
    folder = mxrun.folder / "faces" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    facts: Facts = json.loads(program(mxrun, folder, f"face_{name}.py"))
    if name == "updates" and mxrun.name == "work":
        require_optimizers(mxrun, facts)
    return facts


def require_optimizers(mxrun: Installation, facts: Facts) -> None:
    """Raise SystemExit for an optimizer that the program leaves out."""
    forms = json.loads(mxrun.run("schema"))["$defs"]["Optimizer"]["anyOf"]
    known = {name for form in forms for name in form.get("properties", {})}
    missing = sorted(name for name in known if f"{name} 0, plain" not in facts)
    if missing or not known:
        raise SystemExit(f"not in face_updates.py: {', '.join(missing) or 'any optimizer'}")


PART = Part(_NAMES, facts_of)
