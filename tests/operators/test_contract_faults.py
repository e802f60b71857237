"""Faults planted in a user's operator file: each is caught and described by its check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import body_faults
import property_faults
import pytest
from planted import MORE, SOUND, plant
from refusals import only_problem

from mxrun.commands.check_op import check_operator
from mxrun.report.contract import contract_parts

pytestmark = pytest.mark.usefixtures("separate_registry")

FAULTS = body_faults.FAULTS | property_faults.FAULTS


def report(path: Path, name: str) -> dict[str, Any]:
    return check_operator(f"{path}:{name}")


def test_F8_a_sound_operator_of_a_user_keeps_the_contract(tmp_path: Path) -> None:
    found = report(plant(tmp_path, "sound"), "sound")
    assert found["passed"], [c for c in found["checks"] if not c["passed"]]
    assert len(found["cases"]) >= 10
    assert len(SOUND.splitlines()) > 80


@pytest.mark.parametrize("name", FAULTS)
def test_F8_each_planted_fault_is_caught(tmp_path: Path, name: str) -> None:
    check, words, changes = FAULTS[name]
    found = report(plant(tmp_path, name, *changes), name)
    assert not found["passed"]
    broken = {each["name"]: each["problems"] for each in found["checks"] if not each["passed"]}
    assert check in broken, {key: value[0]["sentence"] for key, value in broken.items()}
    sentences = [problem["sentence"] for problem in broken[check]]
    assert any(all(word in sentence for word in words) for sentence in sentences), sentences[:3]


def test_of_an_operator_that_draws_numbers_of_its_own_nothing_else_is_told(tmp_path: Path) -> None:
    *_, changes = FAULTS["draws_from_numpy"]
    found = report(plant(tmp_path, "noisy", *changes), "noisy")
    broken = [each for each in found["checks"] if not each["passed"]]
    assert [each["name"] for each in broken] == ["calls alike"]
    assert len(broken[0]["problems"]) == len(found["cases"])


def test_a_gradient_that_is_missing_is_said(tmp_path: Path) -> None:
    no_gradient = (
        MORE,
        "    def list_gradients(self) -> Any:\n"
        "        from mxrun.operator.property import GradientKind\n\n"
        "        return (GradientKind.COMPUTES, GradientKind.NONE)\n",
    )
    found = report(plant(tmp_path, "half", no_gradient), "half")
    assert found["without_gradient"] == ["rhs"]
    shown = [str(part) for part in contract_parts(found)]
    assert any(text.startswith("no gradient for rhs: the layers before it") for text in shown)
    assert report(plant(tmp_path, "both"), "both")["without_gradient"] == []


def test_P20_another_name_than_the_type_string_is_refused_with_its_line(tmp_path: Path) -> None:
    path = plant(tmp_path, "misnamed", ('type_string = "planted"', 'type_string = "other"'))
    problem = only_problem(report, path, "misnamed")
    assert "registered as 'misnamed', but its type string is 'other'" in problem.problem
    assert problem.place is not None
    line = path.read_text().splitlines()[problem.place.line - 1]
    assert line == '@register("misnamed")'
