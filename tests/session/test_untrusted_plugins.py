"""Plugins named by a run's folder, in every form in which its config can name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from layer_configs import classifier, config_text

from mxrun.base.errors import UserError
from mxrun.session.planning import load, trust_plugins
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
    # Known from then on.
    load(config)


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
    (evil.parent / "own").mkdir()
    config = evil.parent / "own" / "mine.yaml"
    config.write_text("extends: ../evil/config.yaml\n")
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
