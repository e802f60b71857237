"""500 mutated configs: each can be planned, or every diagnostic names file, line and column."""

import random
import shutil
from pathlib import Path

import pytest
from mutations import is_yaml, make_extreme, mutate

from mxrun import session
from mxrun.base.errors import Diagnostic, UserError

CONFIGS = Path(__file__).parents[2] / "configs"
RESNET = Path(__file__).parent / "resnet50.yaml"
MUTATIONS = 500


def refused(path: Path) -> tuple[Diagnostic, ...]:
    """What is wrong with a config, or nothing; any other error is the test's."""
    try:
        plan = session.plan_for(session.load(path), training=True, threads=1)
    except UserError as error:
        return error.diagnostics or pytest.fail("an error that says nothing")
    assert plan.planned_bytes > 0
    return ()


def has_place(problem: Diagnostic, path: Path) -> bool:
    """Whether it is told where, in the config or in one that it extends; or from where."""
    place = problem.place
    if place is None or any(str(path) in link for link in problem.chain):
        return place is not None
    file = Path(place.file)
    lines = file.read_bytes().count(b"\n") if file.parent == path.parent else -2
    return 1 <= place.line <= lines + 2 and place.column >= 1


def test_F9_mutated_configs_give_plans_or_diagnostics_with_places(tmp_path: Path) -> None:
    sources = [path.read_bytes() for path in (*sorted(CONFIGS.glob("*.yaml")), RESNET)]
    assert len(sources) >= 4
    source = random.Random(20)
    path = tmp_path / "mutated.yaml"
    for config in CONFIGS.glob("*.yaml"):
        shutil.copy(config, tmp_path)
    well_formed = planned = 0
    for number in range(MUTATIONS):
        content = sources[number // 2 % len(sources)]
        if number % 2:
            content = make_extreme(content.decode(), source).encode()
        else:
            content = mutate(content, source)
        path.write_bytes(content)
        well_formed += is_yaml(content)
        found = refused(path)
        planned += not found
        for problem in found:
            assert has_place(problem, path), (content, problem)
            assert problem.problem
    assert well_formed >= MUTATIONS / 2
    assert MUTATIONS / 20 < planned < MUTATIONS / 2
