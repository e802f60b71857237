"""Mutated configs: each can be planned, or every diagnostic names file, line and column."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import CONFIGS
from mutations import is_yaml, make_extreme, mutate

from mxrun.base.errors import Diagnostic, UserError
from mxrun.preparation.planning import load, plan_for

RESNET = Path(__file__).parents[1] / "config" / "resnet50.yaml"


@dataclass(frozen=True)
class Survey:
    """Counts of mutated configs: those that are YAML, and those that could be planned."""

    well_formed: int
    planned: int


def survey(folder: Path, count: int, seed: int) -> Survey:
    """Mutate the bundled configs and a large one in turn; fails on anything but a clear result."""
    sources = [path.read_bytes() for path in (*sorted(CONFIGS.glob("*.yaml")), RESNET)]
    assert len(sources) >= 4
    source = random.Random(seed)
    path = folder / "mutated.yaml"
    for config in CONFIGS.glob("*.yaml"):
        shutil.copy(config, folder)
    well_formed = planned = 0
    for number in range(count):
        content = sources[number // 2 % len(sources)]
        if number % 2:
            content = make_extreme(content.decode(), source).encode()
        else:
            content = mutate(content, source)
        path.write_bytes(content)
        well_formed += is_yaml(content)
        found = _refused(path)
        planned += not found
        for problem in found:
            assert _has_place(problem, path), (content, problem)
            assert problem.problem
        assert path.read_bytes() == content
    return Survey(well_formed, planned)


def _refused(path: Path) -> tuple[Diagnostic, ...]:
    """Return the errors of a config, or nothing; any other exception fails the test."""
    try:
        plan = plan_for(load(path), training=True, threads=1)
    except UserError as error:
        return error.diagnostics or pytest.fail("an error that says nothing")
    assert plan.planned_bytes > 0
    return ()


def _has_place(problem: Diagnostic, path: Path) -> bool:
    """Return whether an error has a location, in the config or in its chain of references."""
    place = problem.place
    if place is None or any(str(path) in link for link in problem.chain):
        return place is not None
    file = Path(place.file)
    # A config may extend a bundled one.
    lines = file.read_bytes().count(b"\n") if file.parent in (path.parent, CONFIGS) else -2
    return 1 <= place.line <= lines + 2 and place.column >= 1
