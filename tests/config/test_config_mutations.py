"""500 mutated configs: each can be planned, or every diagnostic names file, line and column."""

from pathlib import Path

from mutated_configs import survey

MUTATIONS = 500


def test_F9_mutated_configs_give_plans_or_diagnostics_with_places(tmp_path: Path) -> None:
    found = survey(tmp_path, MUTATIONS, seed=20)
    assert found.well_formed >= MUTATIONS / 2
    assert MUTATIONS / 20 < found.planned < MUTATIONS / 2
