"""Plugins that folders of others name, in every form in which their configs can name them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import mxrun, refused, succeeded
from layer_configs import classifier, config_file, config_text

import mxrun as package
from mxrun.base.errors import UserError
from mxrun.commands.convert import convert
from mxrun.commands.evaluate import evaluate
from mxrun.commands.generate import generate
from mxrun.commands.infer import infer
from mxrun.commands.inspect_memory import inspect_configs
from mxrun.generation.prompts import Prompt
from mxrun.options.convert import ConvertOptions
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.options.inspect_memory import InspectOptions
from mxrun.preparation.planning import load, trust_plugins
from mxrun.train.checkpoint import MANIFEST_FILE

CONFIG = config_text(
    classifier(10),
    settings="plugins: [evil.py]\n",
    data="""\
data:
  batch_size: 64
  train: {dataset: digits, split: train}
""",
)


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run folder whose plugin, never run by this user, creates the file `was run`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "metrics.jsonl").touch()
    marker = f"open({str(tmp_path / 'was run')!r}, 'w').close()"
    (folder / "evil.py").write_text(f"{marker}\n")
    return folder


def own_folder(evil: Path) -> Path:
    """Return a folder of the user's beside that of the run."""
    folder = evil.parent / "own"
    folder.mkdir()
    return folder


def refuses_to_run(config: Path) -> None:
    """Assert that the plugins of a config are refused, and that the hint allows them."""
    marker = config.parent.parent / "was run"
    with pytest.raises(UserError, match="was never run by you") as caught:
        load(config)
    (found,) = caught.value.diagnostics
    assert f"`mxrun check {config} --allow-plugins`" in found.hint
    assert not marker.exists()
    trust_plugins(config)
    assert marker.exists()


# By command, the ways to a run's folder.
FOLDER_READERS: dict[str, Callable[[str], object]] = {
    "infer": lambda run: infer(InferOptions(run=Path(run), inputs=("x.npy",))),
    "evaluate": lambda run: evaluate(EvaluateOptions(run=Path(run))),
    "generate": lambda run: generate(InferOptions(run=Path(run), prompt="a"), [Prompt("a")]),
    "convert": lambda run: convert(ConvertOptions(source=run, output=Path("net.onnx"))),
    "inspect-memory": lambda run: inspect_configs(InspectOptions(config=run)),
    "inspect-memory --diff": lambda run: inspect_configs(
        InspectOptions(config="digits_lenet", diff=run)
    ),
    "mxrun.load": package.load,
}


@pytest.mark.parametrize("command", FOLDER_READERS)
@pytest.mark.parametrize("has_results", [False, True])
def test_what_a_named_folder_names_is_asked_about(
    evil: Path, command: str, has_results: bool
) -> None:
    (evil / "config.yaml").write_text(CONFIG)
    if not has_results:
        (evil / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=f"the folder {evil} names it"):
        FOLDER_READERS[command](str(evil))
    assert not (evil.parent / "was run").exists()


def test_what_a_config_extends_in_another_folder_is_asked_about(evil: Path) -> None:
    (evil / "base.yaml").write_text(CONFIG)
    (evil / "config.yaml").write_text("extends: base.yaml\n")
    (evil / "metrics.jsonl").unlink()
    mine = config_file(own_folder(evil), "extends: ../evil/config.yaml\n", "mine.yaml")
    with pytest.raises(UserError, match=r"allow_plugins=True of mxrun\.load"):
        package.load({"extends": str(mine)})
    refuses_to_run(mine)


def test_a_dictionary_that_extends_another_folder_can_allow_it(evil: Path) -> None:
    (evil / "base.yaml").write_text(CONFIG)
    package.load({"extends": str(evil / "base.yaml")}, allow_plugins=True)
    assert (evil.parent / "was run").exists()


def test_a_link_to_a_config_in_another_folder_is_asked_about(evil: Path) -> None:
    (evil / "base.yaml").write_text(CONFIG.replace("evil.py", str(evil / "evil.py")))
    mine = own_folder(evil) / "mine.yaml"
    mine.symlink_to("../evil/base.yaml")
    refuses_to_run(mine)


def test_configs_named_by_their_files_name_plugins_of_ones_own(evil: Path) -> None:
    (evil / "metrics.jsonl").unlink()
    (evil / "base.yaml").write_text("extends: digits_lenet\nplugins: [evil.py]\n")
    (evil / "config.yaml").write_text("extends: base.yaml\n")
    link = evil.parent / "link"
    link.symlink_to("evil")
    load(link / "config.yaml")
    assert (evil.parent / "was run").exists()


def test_a_plugin_that_ones_own_config_names_is_ones_own_whatever_it_extends(evil: Path) -> None:
    (evil / "base.yaml").write_text(CONFIG.replace("evil.py", "absent.py"))
    mine = config_file(
        own_folder(evil), "extends: ../evil/base.yaml\nplugins: [../evil/evil.py]\n", "mine.yaml"
    )
    load(mine)
    assert (evil.parent / "was run").exists()


def test_what_was_allowed_once_runs_with_a_note_and_only_unchanged_at_its_place(
    evil: Path, tmp_path: Path
) -> None:
    (evil / "config.yaml").write_text(CONFIG)
    saved, command = str(evil / "config.yaml"), ("inspect-memory", str(evil))
    assert "was never run by you" in refused(*command, cwd=tmp_path)
    allowed = mxrun("check", saved, "--allow-plugins", cwd=tmp_path)
    assert f"the plugin {evil / 'evil.py'} runs" not in allowed.stderr
    later = mxrun(*command, cwd=tmp_path)
    succeeded(later)
    (note,) = (line for line in later.stderr.splitlines() if "the plugin" in line)
    assert note.startswith(f"mxrun: the plugin {evil / 'evil.py'} runs, which the folder {evil}")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.yaml", "evil.py"):
        (copy / name).write_bytes((evil / name).read_bytes())
    assert "was never run by you" in refused("inspect-memory", str(copy), cwd=tmp_path)
    Path(note.partition("asked again, remove ")[2].rstrip(")")).unlink()
    assert "was never run by you" in refused(*command, cwd=tmp_path)


def test_trust_that_cannot_be_recorded_is_said(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (evil / "config.yaml").write_text(CONFIG)
    done = mxrun("check", str(evil / "config.yaml"), "--allow-plugins", cwd=tmp_path)
    succeeded(done)
    assert f"the plugin {evil / 'evil.py'} is trusted in this process only" in done.stderr


def test_what_the_config_of_a_run_extends_is_asked_about(evil: Path) -> None:
    (evil / "base.yaml").write_text(CONFIG)
    (evil / "config.yaml").write_text("extends: base.yaml\n")
    refuses_to_run(evil / "config.yaml")


@pytest.mark.parametrize("target", ["x.yaml", "../elsewhere.yaml"])
def test_the_config_of_a_run_that_is_a_link_is_asked_about(evil: Path, target: str) -> None:
    (evil / target).write_text(CONFIG.replace("evil.py", str(evil / "evil.py")))
    (evil / "config.yaml").symlink_to(target)
    refuses_to_run(evil / "config.yaml")


def test_a_config_that_extends_that_of_a_run_is_asked_about(evil: Path) -> None:
    (evil / "config.yaml").write_text(CONFIG)
    config = config_file(own_folder(evil), "extends: ../evil/config.yaml\n", "mine.yaml")
    refuses_to_run(config)


def test_plugins_of_the_command_line_are_the_users_own(evil: Path) -> None:
    (evil / "config.yaml").write_text(CONFIG.replace("evil.py", "absent.py"))
    load(evil / "config.yaml", [f"plugins=[{evil / 'evil.py'}]"])
    assert (evil.parent / "was run").exists()


def test_allowing_the_plugins_of_a_bundled_config_allows_no_others(
    evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (evil / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(evil)
    trust_plugins("digits_lenet")
    assert not (evil.parent / "was run").exists()


def test_allowing_the_plugins_of_a_checkpoint_allows_those_of_its_run(evil: Path) -> None:
    (evil / "config.yaml").write_text(CONFIG)
    checkpoint = evil / "checkpoint-1"
    checkpoint.mkdir()
    (checkpoint / MANIFEST_FILE).touch()
    trust_plugins(checkpoint)
    assert (evil.parent / "was run").exists()
