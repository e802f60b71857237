"""`inspect-memory --diff` and `--fail-above`: differences and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, refused, result, succeeded

ONE, OTHER = "digits_lenet", "digits_regularized"
OPTIONS = ("--threads", "1", "--batch", "16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def reports(folder: Path) -> list[dict[str, Any]]:
    return [result("inspect-memory", name, *OPTIONS, cwd=folder) for name in (ONE, OTHER)]


def test_F7_the_difference_is_that_of_two_reports(
    folder: Path, reports: list[dict[str, Any]]
) -> None:
    both = result("inspect-memory", ONE, "--diff", OTHER, *OPTIONS, cwd=folder)
    difference = both["diff"]
    assert (both["name"], difference["name"]) == (ONE, OTHER)
    for key, pair in difference["figures"].items():
        assert pair == [report[key] for report in reports]
    assert {"planned_bytes", "lower_bound_bytes"} <= set(difference["figures"])
    for name, figures in difference["classes"].items():
        for key, pair in figures.items():
            assert pair == [report["classes"][name][key] for report in reports]
    peak = difference["peak"]
    assert peak["bytes"] == [report["peak"]["bytes"] for report in reports]
    more = sum(tensor["bytes"][1] - tensor["bytes"][0] for tensor in peak["tensors"])
    assert more == peak["bytes"][1] - peak["bytes"][0]
    assert peak["tensors"]
    assert both["outside"] == {}


def test_F7_people_see_the_difference(folder: Path, reports: list[dict[str, Any]]) -> None:
    done = succeeded(mxrun("inspect-memory", ONE, "--diff", OTHER, *OPTIONS, cwd=folder))
    assert done.stdout.count(ONE) >= 3
    assert done.stdout.count(OTHER) >= 3
    (planned,) = [line for line in done.stdout.splitlines() if line.startswith("  planned")]
    more = reports[1]["planned_bytes"] > reports[0]["planned_bytes"]
    assert ("+" if more else "-") in planned
    largest = result("inspect-memory", ONE, "--diff", OTHER, *OPTIONS, cwd=folder)
    assert largest["diff"]["peak"]["tensors"][0]["tensor"] in done.stdout


def test_F7_a_network_does_not_differ_from_itself(folder: Path) -> None:
    same = result("inspect-memory", ONE, "--diff", ONE, *OPTIONS, cwd=folder)["diff"]
    assert same["peak"]["tensors"] == []
    assert all(pair[0] == pair[1] for pair in same["figures"].values())
    shown = mxrun("inspect-memory", ONE, "--diff", ONE, *OPTIONS, cwd=folder).stdout
    assert "not the same" not in shown
    assert "+" not in shown


def test_what_is_there_is_found_before_anything_is_planned(folder: Path) -> None:
    assert "there is no config 'digits_lenett'" in refused(
        "inspect-memory", ONE, "--diff", "digits_lenett", cwd=folder
    )


def test_F1_an_arena_above_the_limit_fails(folder: Path, reports: list[dict[str, Any]]) -> None:
    planned = reports[0]["planned_bytes"]
    command = ("inspect-memory", ONE, *OPTIONS, "--json", "--fail-above")
    for limit in (f"{planned}", f"{planned} B", "1GiB", "1.5 MiB"):
        done = mxrun(*command, limit, cwd=folder)
        assert (done.returncode, done.stderr) == (0, "")
    for limit in (f"{planned - 1}", "1 KiB", "0"):
        done = mxrun(*command, limit, cwd=folder)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert f"mxrun: {ONE} plans" in line
        assert f"({planned:,} bytes)" in line
        assert line.endswith(f"{reports[0]['peak']['title']} in train sets the peak")
        assert f'"planned_bytes":{planned}' in done.stdout


@pytest.mark.parametrize("limit", ["2 GB", "much", "-1", "1e9", "MiB"])
def test_a_limit_that_is_no_size_is_refused(limit: str, folder: Path) -> None:
    message = refused("inspect-memory", ONE, f"--fail-above={limit}", cwd=folder)
    assert repr(limit) in message
    assert "512 MiB" in message


def test_F7_what_if_and_the_difference_are_asked_apart(folder: Path) -> None:
    message = refused("inspect-memory", ONE, "--diff", OTHER, "--what-if", cwd=folder)
    assert "--what-if" in message
    assert "--diff" in message


@pytest.mark.parametrize("at_fault", [ONE, OTHER])
def test_F7_what_is_wrong_with_one_of_two_configs_names_it(at_fault: str, folder: Path) -> None:
    """A budget from the command line applies to both configs; one of them needs more."""
    pair = (at_fault, "--diff", "mlp_regression")
    if at_fault == OTHER:
        pair = ("mlp_regression", "--diff", at_fault)
    message = refused("inspect-memory", *pair, "memory.budget=100KiB", *OPTIONS, cwd=folder)
    assert "does not fit into memory.budget" in message
    assert at_fault in message
    assert "mlp_regression" not in message
