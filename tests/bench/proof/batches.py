"""Batches of every data set and every transform, with and without loader threads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proof import batch_formats as formats
from proof.batch_config import Config
from proof.batch_transforms import ORDER, TRANSFORMS
from proof.installation import Facts, Installation
from proof.part import Part

PROGRAMS = Path(__file__).resolve().parent / "programs"
_GUARD = "registered"
# Keys of a section, whatever its data set.
_SHARED = {"split", "shuffle", "sampling", "transforms", "num_parts", "part_index"}
GROUPS: dict[str, dict[str, Config]] = {
    "tables": formats.TABLES,
    "arrays": formats.ARRAYS,
    "images": formats.IMAGES,
    "packed": formats.PACKED,
    "published and made": formats.PUBLISHED,
    "texts": formats.TEXTS,
    "parquet": formats.PARQUET,
    "transforms": TRANSFORMS,
    "order": ORDER,
}


def facts_of(mxrun: Installation, group: str) -> Facts:
    """Return what the networks of a group's configs read, or what is registered."""
    if group == _GUARD:
        return registered(mxrun)
    folder = _data_folder(mxrun, group)
    facts = packed(mxrun, folder) if group == "packed" else {}
    cases = folder / "cases.json"
    cases.write_text(json.dumps(GROUPS[group]))
    facts |= json.loads(program(mxrun, folder, "batch_runs.py", str(cases)))
    for key, value in facts.items():
        if key.endswith(": error") and not key.startswith("refused") and mxrun.name == "work":
            raise SystemExit(f"a case of the part batches does not train: {key}\n{value}")
    return facts


def program(mxrun: Installation, folder: Path, name: str, *arguments: str) -> str:
    """Run one of the programs in a folder and return its output; SystemExit if it fails."""
    done = mxrun.call([str(PROGRAMS / name), *arguments], folder)
    if done.returncode:
        raise SystemExit(
            f"{mxrun.name}: {name} ended with {done.returncode}\n{done.stderr[-4000:]}"
        )
    return done.stdout


def _data_folder(mxrun: Installation, group: str) -> Path:
    """Folder of the data files, which are written once, and again where pyarrow is needed."""
    folder = mxrun.folder / "data"
    if GROUPS[group] is formats.PARQUET:
        done = mxrun.call(["-m", "pip", "install", "--quiet", "mxrun[arrow]"])
        if done.returncode:
            raise SystemExit(f"{mxrun.name}: pyarrow cannot be installed\n{done.stderr[-2000:]}")
        folder /= "parquet"
    if not folder.exists():
        folder.mkdir(parents=True)
        program(mxrun, folder, "batch_files.py")
    return folder


def packed(mxrun: Installation, folder: Path) -> Facts:
    """Pack the images; the SHA-256 of each file."""
    facts: Facts = {}
    (folder / "packed").mkdir(exist_ok=True)
    for out, (source, options) in formats.PACKS.items():
        arguments = ("pack", source, f"packed/{out}", *options, "--overwrite", "--json")
        done = mxrun.call(["-m", "mxrun", *arguments], folder)
        facts[f"pack {out}: exit code"] = done.returncode
    for file in sorted((folder / "packed").iterdir()):
        facts[f"packed {file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    return facts


def registered(mxrun: Installation) -> Facts:
    """Names of data sets and transforms with their options; SystemExit if no case has one."""
    schema = json.loads(mxrun.run("schema"))["$defs"]
    facts: Facts = {"data": sorted(schema["Data"]["properties"])}
    for kind in schema["DatasetSection"]["anyOf"]:
        options = kind["properties"]
        facts[f"data set {options['dataset']['const']}"] = sorted(options)
    for form in schema["Transform"]["anyOf"]:
        for name, kind in form.get("properties", {}).items():
            facts[f"transform {name}"] = sorted(kind["properties"])
    if mxrun.name == "work":
        used = _used()
        missing = [each for name in facts for each in _missing(name, facts[name], used.get(name))]
        if missing:
            raise SystemExit("in no case of the part batches: " + "; ".join(missing))
    return facts


def _missing(name: str, options: Sequence[str], used: set[str] | None) -> Iterator[str]:
    if used is None:
        yield name
    else:
        yield from (f"{option} of {name}" for option in options if option not in used)


def _used() -> dict[str, set[str]]:
    """Return the options that the cases give to each data set and transform, and to `data`."""
    found: dict[str, set[str]] = {"data": {"workers"}}
    # Keys that every data set has are used if one does.
    shared: set[str] = set()
    for config in (config for cases in GROUPS.values() for config in cases.values()):
        data = config["data"]
        found["data"].update(data)
        for part in ("train", "eval"):
            options: Mapping[str, Any] = data.get(part, {})
            if options:
                found.setdefault(f"data set {options['dataset']}", set()).update(options)
                shared |= _SHARED & {*options}
            for each in options.get("transforms", ()):
                chain = each if isinstance(each, Mapping) else {each: {}}
                for name, given in chain.items():
                    found.setdefault(f"transform {name}", set()).update(given)
    return {name: used | shared for name, used in found.items()}


PART = Part((_GUARD, *GROUPS), facts_of)
