"""500 mutated configs: each can be planned, or every diagnostic names file, line and column."""

from pathlib import Path

import pytest
from mutated_configs import survey


@pytest.mark.parametrize(
    ("mutations", "seed"), [(25, 21), pytest.param(230, 20, marks=pytest.mark.full)]
)
def test_F9_mutated_configs_give_plans_or_diagnostics_with_places(
    mutations: int, seed: int, tmp_path: Path
) -> None:
    found = survey(tmp_path, mutations, seed)
    assert found.well_formed >= mutations / 2
    assert mutations / 20 < found.planned < mutations / 2
