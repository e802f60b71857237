"""Commands are found by the index: one file adds a command, and a command imports no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import python_output
from doc_pages import blocks_of
from registry_index import COMMAND
from typer.testing import CliRunner

import mxrun
from mxrun.base.near_names import folded
from mxrun.cli.command_group import suggestion
from mxrun.cli.main import app
from mxrun.cli.registry import COMMANDS, names_in
from mxrun.commands.docs import page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a copy of the package with the documented command, in the index."""
    folder = tmp_path_factory.mktemp("copied")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(mxrun.__file__).parent, folder / "mxrun", ignore=ignored)
    blocks = blocks_of(page("architecture").text)
    (shown,) = (block for block in blocks if block.file == "shout.py")
    (folder / "mxrun" / "cli" / "shout.py").write_text(shown.text)
    # Commands without an order and with the order 0.
    (folder / "mxrun" / "cli" / "whispers.py").write_text(
        "from mxrun.cli.registry import COMMANDS\n"
        "for name, order in {'hum': {}, 'whisper': {'order': 0}}.items():\n"
        "    COMMANDS.register(name, **order)(lambda: None)\n"
    )
    done = run(folder, str(ROOT / COMMAND.removeprefix("python ")))
    assert done.returncode == 0, done.stderr
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the package in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False
    )


def test_a_file_with_its_options_and_the_written_index_are_a_command(copied: Path) -> None:
    listed = run(copied, "-m", "mxrun", "--help").stdout
    names = [line.split()[0] for line in listed.partition("Commands:")[2].splitlines() if line]
    assert names == ["whisper", "init", "shout", *names_in("")[1:], "hum"]
    assert run(copied, "-m", "mxrun", "shout", "no", "--times", "2").stdout == "NO\nNO\n"
    assert run(copied, "-m", "mxrun", "shout", "no", "--json").stdout == '{"text":"NO\\n"}\n'
    refused = run(copied, "-m", "mxrun", "shout", "no", "--times", "0")
    assert refused.returncode == 2
    assert "'--times'" in refused.stderr
    reference = (copied / "mxrun" / "docs" / "reference" / "commands.md").read_text()
    assert "`mxrun shout TEXT [OPTIONS]`" in reference
    assert "| `--times N` | How often. | 1 |" in reference


@pytest.mark.parametrize(("word", "form"), [("Yell", "shout"), ("echo", "shout TEXT --times 2")])
def test_names_in_other_programs_stand_with_the_command(copied: Path, word: str, form: str) -> None:
    refused = run(copied, "-m", "mxrun", word)
    assert refused.returncode == 2
    assert refused.stderr.endswith(f"No such command {word!r}. Did you mean {form!r}?\n")


def test_help_shows_every_command_with_examples() -> None:
    listed = CliRunner().invoke(app, ["--help"]).output
    for name in COMMANDS:
        shown = CliRunner().invoke(app, [*name.split(), "--help"])
        assert shown.exit_code == 0
        assert f"mxrun {name}" in shown.output.partition("Example")[2]
        assert name.partition(" ")[0] in listed


def test_every_name_in_another_program_leads_to_a_command() -> None:
    foreign = COMMANDS.foreign()
    assert len(foreign) > 40
    assert not foreign.keys() & {folded(name) for name in names_in("")}
    for word, form in foreign.items():
        assert word == folded(word)
        assert suggestion(word, names_in("")) == f"Did you mean {form!r}?"
        function, usage = COMMANDS.get(form.partition(" ")[0]), form.split(" ")
        assert function
        assert usage[0] in names_in("")
        assert all(each in COMMANDS or each.isupper() or each[:2] == "--" for each in usage[2:])


def test_a_command_imports_no_other() -> None:
    script = (
        "import sys; from mxrun.base.registry import index; from mxrun.cli.main import app\n"
        "app(['runs', '--help'], standalone_mode=False)\n"
        "print(sorted({each['module'] for each in index()['command'].values()} & {*sys.modules}))"
    )
    assert python_output("-c", script).splitlines()[-1] == "['mxrun.cli.runs']"
