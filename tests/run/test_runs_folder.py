"""The folder of runs: by option and environment variable, runs by name, and abandoned runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mxrun, refused, result, succeeded

SHORT = ("train", "digits_lenet", "train.epochs=1", "threads=1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run in the folder of runs `all/mine`."""
    folder = tmp_path_factory.mktemp("trained")
    result(*SHORT, "--runs", "all/mine", cwd=folder)
    return folder


def test_the_option_and_the_variable_name_the_folder_of_runs(tmp_path: Path) -> None:
    named = {"MXRUN_RUNS": "named"}
    assert result(*SHORT, cwd=tmp_path, environment=named)["run_dir"] == "named/digits_lenet"
    summary = result(*SHORT, "--runs", "given", cwd=tmp_path, environment=named)
    assert summary["run_dir"] == "given/digits_lenet"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "named"]
    resumed = mxrun(*SHORT, "--resume", cwd=tmp_path, environment=named)
    assert "named/digits_lenet is already finished" in succeeded(resumed).stderr


def test_a_run_is_found_by_its_name(trained: Path) -> None:
    runs = ("--runs", "all/mine")
    by_path = result("infer", "all/mine/digits_lenet", "--split", "eval", cwd=trained)
    for name in ("digits_lenet", "digits_lenet/checkpoint-23"):
        found = result("infer", name, "--split", "eval", *runs, cwd=trained)
        assert found["checkpoint"] == by_path["checkpoint"]
        assert found["metrics"] == by_path["metrics"]
    by_variable = {"MXRUN_RUNS": "all/mine"}
    found = result("infer", "digits_lenet", "--split", "eval", cwd=trained, environment=by_variable)
    assert found["metrics"] == by_path["metrics"]
    text = refused("infer", "digits_lenet", "--split", "eval", cwd=trained)
    assert "digits_lenet is not a run" in text
    assert "`mxrun runs` lists runs" in text


def test_a_path_goes_before_the_name_of_a_run(trained: Path, tmp_path: Path) -> None:
    result(*SHORT, "seed=1", "--runs", ".", cwd=tmp_path)
    found = result(
        *("infer", "digits_lenet", "--split", "eval", "--runs", str(trained / "all/mine")),
        cwd=tmp_path,
    )
    assert found["checkpoint"] == "digits_lenet/checkpoint-23"


def test_a_bundled_name_is_a_config_for_convert_unless_a_checkpoint_is_named(trained: Path) -> None:
    arguments = ("convert", "digits_lenet", "-o", "net.onnx", "--runs", "all/mine")
    initial = succeeded(mxrun(*arguments, cwd=trained)).stderr
    assert "the parameters are initial ones" in initial
    assert "mxrun convert all/mine/digits_lenet writes its parameters" in initial
    chosen = succeeded(mxrun(*arguments, "--checkpoint", "newest", cwd=trained)).stderr
    assert "all/mine/digits_lenet/checkpoint-23" in chosen


def abandoned(folder: Path) -> Path:
    """Return the folder of a run that ended before its first checkpoint."""
    result(*SHORT, cwd=folder)
    run = folder / "runs" / "digits_lenet"
    for path in (*run.glob("checkpoint-*/*"), run / "summary.json", run / "timing.jsonl"):
        path.unlink()
    for path in run.glob("checkpoint-*"):
        path.rmdir()
    (run / "metrics.jsonl").write_bytes(b"")
    return run


def test_a_run_without_progress_is_replaced(tmp_path: Path) -> None:
    run = abandoned(tmp_path)
    done = succeeded(mxrun(*SHORT, "seed=3", cwd=tmp_path))
    assert "the run in runs/digits_lenet ended before its first checkpoint" in done.stderr
    assert "seed: 3" in (run / "config.yaml").read_text()
    assert (run / "summary.json").is_file()


def test_a_folder_with_anything_else_is_not_replaced(tmp_path: Path) -> None:
    run = abandoned(tmp_path)
    saved = (run / "config.yaml").read_bytes()
    for name, content in (
        ("notes.txt", b"mine"),
        ("metrics.jsonl", b'{"epoch":1}\n'),
        ("config.yaml", b"# by hand\n" + saved),
        ("config.yaml", b"name: [unfinished"),
        ("summary.json", b"{}"),
    ):
        before = (run / name).read_bytes() if (run / name).exists() else None
        (run / name).write_bytes(content)
        text = refused(*SHORT, "seed=3", cwd=tmp_path)
        assert "--overwrite replaces it" in text, name
        assert (run / name).read_bytes() == content
        if before is None:
            (run / name).unlink()
        else:
            (run / name).write_bytes(before)
    succeeded(mxrun(*SHORT, "seed=3", cwd=tmp_path))
