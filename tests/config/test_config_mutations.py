"""500 mutated configs: each loads, or every diagnostic names file, line and column."""

import random
from pathlib import Path

from mutations import is_yaml, mutate

from mxrun.config import parse

CONFIGS = Path(__file__).parents[2] / "configs"
RESNET = Path(__file__).parent / "resnet50.yaml"
MUTATIONS = 500


def test_F9_mutated_configs_give_diagnostics_with_places(tmp_path: Path) -> None:
    sources = [path.read_bytes() for path in (*sorted(CONFIGS.glob("*.yaml")), RESNET)]
    assert len(sources) >= 4
    source = random.Random(20)
    path = tmp_path / "mutated.yaml"
    well_formed = accepted = 0
    for number in range(MUTATIONS):
        content = mutate(sources[number % len(sources)], source)
        path.write_bytes(content)
        well_formed += is_yaml(content)
        parsed = parse(path)
        accepted += parsed.config is not None
        assert (parsed.config is None) == bool(parsed.diagnostics)
        for problem in parsed.diagnostics:
            assert problem.place is not None, content
            assert problem.place.file == str(path)
            assert 1 <= problem.place.line <= content.count(b"\n") + 2, (content, problem)
            assert problem.place.column >= 1
            assert problem.problem
    assert well_formed >= MUTATIONS / 2
    assert 0 < accepted < MUTATIONS
