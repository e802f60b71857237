"""Commands in real processes: streams and exit codes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commands import HANG_S, MXRUN, mxrun, on_terminal, refused, result, succeeded
from training import SUMMARY_FIELDS

from mxrun.codegen.processor import kind

SCRIPT = (str(Path(sys.executable).with_name("mxrun")),)
SHORT = ("train", "digits_lenet", "train.epochs=1", "threads=1")


def completed(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return succeeded(mxrun(*arguments, cwd=cwd))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trained")
    return folder, result(*SHORT, cwd=folder)


def test_version() -> None:
    import mxrun as package

    assert completed("--version").stdout == f"mxrun {package.__version__}\n"


def test_the_script_is_the_module() -> None:
    done = subprocess.run([*SCRIPT, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == completed("--version").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("trian",),
        ("train",),
        ("check", "digits_lenet", "--jsno"),
        ("inspect-memory", "x", "--batch=0"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert "Usage: " in refused(*arguments)


@pytest.mark.parametrize("command", ["train", "check", "inspect-memory"])
def test_an_unknown_config_names_the_bundled_ones(command: str, tmp_path: Path) -> None:
    text = refused(command, "digits_lenett", "--json", cwd=tmp_path)
    assert "there is no config 'digits_lenett'" in text
    assert "did you mean 'digits_lenet'?" in text
    assert "mlp_mnist" in text


def test_every_problem_of_a_config_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(
        "network:\n"
        "  inputs: {data: [4], label: []}\n"
        "  layers:\n"
        "    - FullyConected: {num_hidden: 3}\n"
        "    - SoftmaxOutput: {label: label}\n"
        "data: {batch_size: -1, train: {dataset: digits}}\n"
        "train: {epochs: 1, optimizer: {sgd: {lr: fast}}, checkpoint: {every: 11}}\n"
    )
    text = refused("check", "net.yaml", cwd=tmp_path)
    assert "11 steps, 11 epochs or 11 minutes" in text
    for place in ("net.yaml:4:", "net.yaml:6:", "net.yaml:7:"):
        assert place in text
    assert "FullyConnected" in text


def test_errors_are_plain_in_files_and_bold_on_terminals(tmp_path: Path) -> None:
    assert "\x1b" not in refused("check", "nothing", cwd=tmp_path)
    # An empty NO_COLOR counts as none.
    code, shown = on_terminal(
        "check", "nothing", stream="stderr", cwd=tmp_path, environment={"NO_COLOR": ""}
    )
    assert code == 2
    assert "\x1b[1;31m" in shown
    assert "there is no config 'nothing'" in shown


def test_check_lists_layers(tmp_path: Path) -> None:
    report = result("check", "digits_lenet", cwd=tmp_path)
    rows = {row["name"]: row for row in report["rows"]}
    assert rows["conv1"]["output_shapes"] == [[64, 16, 8, 8]]
    assert rows["conv1"]["parameters"] == 16 * 9 + 16
    assert rows["fc2"]["parameters"] == 64 * 10 + 10
    assert report["parameters"] == sum(row["parameters"] for row in report["rows"])
    assert report["flops"] == sum(row["flops"] for row in report["rows"])
    table = completed("check", "digits_lenet", cwd=tmp_path).stdout
    assert all(name in table for name in rows)
    assert "64x16x8x8" in table
    assert list(tmp_path.iterdir()) == []


def test_overrides_reach_the_network(tmp_path: Path) -> None:
    report = result("check", "digits_lenet", "data.batch_size=5", "name=other", cwd=tmp_path)
    assert (report["name"], report["batch_size"]) == ("other", 5)


def test_inspect_memory_needs_no_data(tmp_path: Path) -> None:
    arguments = ("inspect-memory", "mlp_mnist", "--threads", "1")
    train = result(*arguments, cwd=tmp_path)
    infer = result(*arguments, "--phase", "infer", cwd=tmp_path)
    small = result(*arguments, "--batch", "1", cwd=tmp_path)
    assert train["planned_bytes"] == train["lower_bound_bytes"]
    assert train["proved_optimal"] is True
    assert train["planned_bytes"] <= train["in_place_only_bytes"] <= train["naive_bytes"]
    assert infer["planned_bytes"] < train["planned_bytes"]
    assert small["planned_bytes"] < train["planned_bytes"]
    assert infer["classes"]["gradients"]["total_bytes"] == 0
    assert set(train["classes"]) == {
        "parameters",
        "gradients",
        "optimizer",
        "auxiliary",
        "carried",
        "constants",
        "activations",
        "activation_gradients",
        "workspace",
        "io",
    }
    assert train["planning_ms"] > 0
    table = completed(*arguments, cwd=tmp_path).stdout
    assert f"{train['planned_bytes']:,}" in table
    assert "activation gradients" in table


def test_schema_describes_operators_data_sets_and_optimizers() -> None:
    schema = json.loads(completed("schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    for name in ("Convolution", "digits", "sgd", "xavier", "accuracy"):
        assert f'"{name}"' in json.dumps(schema)


def test_training_gives_the_promised_fields(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = trained
    assert set(summary) == SUMMARY_FIELDS
    assert summary["steps"] == 23
    assert 0 <= summary["eval"]["accuracy"] <= 1
    assert {"accuracy", "cross_entropy"} <= set(summary["eval"])
    times = summary["step_ms"]
    assert 0 < times["min"] <= times["median"] <= times["p90"] <= times["p99"]
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]
    assert memory["rss_peak_bytes"] > memory["planned_bytes"]
    run = folder / summary["run_dir"]
    assert json.loads((run / "summary.json").read_text()) == summary
    assert {path.name for path in run.iterdir()} == {
        "config.yaml",
        "metrics.jsonl",
        "timing.jsonl",
        "summary.json",
        "checkpoint-23",
    }


def test_the_first_step_counts_from_the_start_of_the_interpreter(tmp_path: Path) -> None:
    """Not from that of the process, which a shell may have used before."""
    waited = 1.0
    script = f"sleep {waited}; exec {shlex.join([*MXRUN, *SHORT, '--json'])}"
    started = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    took = time.monotonic() - started
    # Numpy and pydantic alone take longer to import than 0.1 s.
    assert 0.1 < json.loads(done.stdout)["first_step_s"] < took - waited


def test_the_saved_config_trains_again_to_the_same_bytes(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, summary = trained
    run = folder / summary["run_dir"]
    again = tmp_path / result("train", str(run / "config.yaml"), cwd=tmp_path)["run_dir"]
    names = sorted(path.name for path in (run / "checkpoint-23").iterdir())
    assert names == [
        "manifest.json",
        "measured.safetensors",
        "optimizer.safetensors",
        "parameters.safetensors",
    ]
    for name in (*(f"checkpoint-23/{name}" for name in names), "metrics.jsonl", "config.yaml"):
        first, second = (hashlib.sha256((r / name).read_bytes()).digest() for r in (run, again))
        assert first == second, name


def test_a_run_is_replaced_only_when_told_so(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = trained
    text = refused(*SHORT, cwd=folder)
    assert text.splitlines() == [
        "runs/digits_lenet exists already",
        "  hint: --resume continues it, --overwrite replaces it, name=OTHER makes another",
    ]
    assert max(map(len, text.splitlines())) <= 80
    assert result(*SHORT, "--overwrite", cwd=folder)["steps"] == summary["steps"]


def test_progress_goes_to_standard_error(tmp_path: Path) -> None:
    done = completed(*SHORT, cwd=tmp_path)
    assert "epoch 1/1  step 23  loss " in done.stderr
    assert "eval " in done.stderr
    assert "epoch 1/1" not in done.stdout
    assert "eval accuracy" in done.stdout


def test_without_onednn_everything_runs_and_says_so_once(
    trained: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "mxrun: oneDNN cannot be loaded: /nonexistent"
    assert "oneDNN cannot" not in completed("inspect-memory", "digits_lenet", "--json").stderr
    monkeypatch.setenv("MXRUN_ONEDNN_LIBRARY", "/nonexistent")
    done = completed(*SHORT, "--json", cwd=tmp_path)
    assert done.stderr.count("oneDNN") == 1
    assert done.stderr.startswith(note)
    summary = json.loads(done.stdout)
    run = tmp_path / summary["run_dir"]
    plan = json.loads((run / "checkpoint-23/manifest.json").read_text())["plan"]
    assert plan["library"] == f"none, loops for {kind()}"
    kernels = {name.partition(":")[0] for name in plan["implementations"].values()}
    assert kernels == {"numpy", "jit"}
    assert summary["eval"]["loss"] == pytest.approx(trained[1]["eval"]["loss"], rel=1e-3)
    for words in (
        ("inspect-memory", "digits_lenet"),
        ("verify", "mlp_mnist", "--steps", "1", "--batch", "2"),
    ):
        done = completed(*words, "--json", cwd=tmp_path)
        assert done.stderr.count("oneDNN") == 1
        assert done.stderr.startswith(note)


def test_a_missing_value_is_asked_for(tmp_path: Path) -> None:
    """The evaluation data exist, so synthetic training data would be useless."""
    there = "data.eval={dataset: synthetic, split: test}"
    text = refused("train", "mlp_mnist", there, cwd=tmp_path)
    assert "data.train.path must be given" in text
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_saves_and_ends_with_75(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*MXRUN, "train", "digits_lenet", "train.epochs=100000", "threads=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("epoch"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
    assert process.returncode == 75
    assert output == ""
    assert "Traceback" not in errors
    assert "--resume continues" in errors
    saved = [path.name for path in (tmp_path / "runs/digits_lenet").glob("checkpoint-*")]
    newest = max(int(name.removeprefix("checkpoint-")) for name in saved)
    assert f"after step {newest} and saved" in errors


@pytest.mark.parametrize("program", [MXRUN, SCRIPT])
@pytest.mark.parametrize("module", ["mxrun.base.errors", "typer.main", "numpy", "pydantic", "yaml"])
def test_an_interrupt_during_imports_ends_with_130(program: tuple[str, ...], module: str) -> None:
    # Python names each module on standard error once it is imported: the moment is in between.
    process = subprocess.Popen(
        [*program, "check", "digits_lenet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
    )
    assert process.stderr is not None
    # The pipe is so small that the process blocks before its end until the signal is sent.
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
    while (line := process.stderr.readline()).rpartition("|")[2].strip() != module:
        assert line, f"{module} is not imported"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, errors[-500:]
    assert output == ""
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("check digits_lenet --json >&-", 0, ""),
        ("check digits_lenet >&-", 0, ""),
        ("check digits_lenet >&- 2>&- <&-", 0, ""),
        ("--help >&-", 0, ""),
        ("check nothing 2>&-", 2, ""),
        ("nonsense 2>&-", 2, ""),
        ("check nothing >&-", 2, "there is no config 'nothing'"),
    ],
)
def test_closed_streams_change_no_exit_code(command: str, code: int, said: str) -> None:
    done = in_shell(command)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(said)
    assert bool(done.stderr) == bool(said)


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the shell's redirections of its streams."""
    return subprocess.run(
        ["sh", "-c", f"{shlex.join(MXRUN)} {command}"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", ["schema", "check digits_lenet", "ops Convolution"])
def test_a_reader_who_goes_away_is_no_error(command: str) -> None:
    words = [*MXRUN, *command.split()]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert errors == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "command", ["check digits_lenet", "check digits_lenet --json", "schema", "--help", "--version"]
)
def test_a_result_that_cannot_be_written_is_told(command: str) -> None:
    done = in_shell(f"{command} >/dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("cannot write standard output: no space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["check nothing", "nonsense", "check digits_lenet >/dev/full"])
def test_an_error_that_cannot_be_written_is_still_an_error(command: str) -> None:
    done = in_shell(f"{command} 2>/dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_check_counts_frozen_parameters(tmp_path: Path) -> None:
    frozen = 'network.variables={"conv1_*": {frozen: true}}'
    report = result("check", "digits_lenet", frozen, cwd=tmp_path)
    assert report["frozen"] == 16 * 9 + 16
    assert report["trainable"] + report["frozen"] == report["parameters"]
    shown = succeeded(mxrun("check", "digits_lenet", frozen, cwd=tmp_path)).stdout
    assert f"\n{report['trainable']:,} trainable, 160 frozen\n" in shown
