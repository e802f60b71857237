"""mxrun as a stranger installs it: a commit in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

# What must be the same, by name: anything that JSON can hold.
Facts = dict[str, Any]


@dataclass(frozen=True)
class Installation:
    """mxrun in an environment of its own, with its own cache; `name` is `base` or `work`."""

    name: str
    folder: Path
    threads: int

    @property
    def program(self) -> Path:
        """The installed script `mxrun`."""
        return self.folder / "bin" / "mxrun"

    def call(
        self,
        command: Sequence[str],
        folder: Path | None = None,
        text: str = "",
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run this installation's Python, in its own folder or another one; `text` is its input."""
        with self.started(command, folder, **environment) as process:
            output, errors = process.communicate(text)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def started(
        self, command: Sequence[str], folder: Path | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start this installation's Python with pipes, in its own folder or another one."""
        own = {"XDG_CACHE_HOME": str(self.folder / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
        return subprocess.Popen(
            [str(self.folder / "bin" / "python"), *command],
            cwd=folder or self.folder,
            env={**os.environ, **own, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Run `mxrun` and return its standard output.

        Raises SystemExit with the command and its output if it fails.
        """
        done = self.call(["-m", "mxrun", *arguments], folder)
        if done.returncode:
            text = done.stderr[-4000:]
            raise SystemExit(
                f"{self.name}: mxrun {' '.join(arguments)} ended with {done.returncode}\n{text}"
            )
        return done.stdout

    def report(self, *arguments: str, folder: Path | None = None) -> Any:
        """Return the JSON that a command prints."""
        return json.loads(self.run(*arguments, "--json", folder=folder))


def sources_of(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode().strip())
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder)
    return folder


def sources_of_working_tree(folder: Path) -> Path:
    """Copy the files that git tracks or does not ignore, in their current state."""
    chosen = ("--cached", "--others", "--exclude-standard")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", *chosen]
    listing = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def installed(name: str, sources: Path, folder: Path, threads: int) -> Installation:
    """Make an environment and install the sources in it."""
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", str(sources)]
    subprocess.run(command, check=True)
    return Installation(name, folder, threads)
