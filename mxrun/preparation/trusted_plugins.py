"""Trust in plugins: the user chooses which files run with his permissions.

A file that he names himself is his choice: in a config that he names by its file, in what that
extends in the same folder, on the command line, or in a dictionary. A folder that he names as a run
may come from anyone, and so may what a config extends from another folder or through a link: he has
not read what their configs name. Those plugins run once he allows them, and later only with a note.

Trust is in one content at one path. It is recorded in the user's cache folder, which is used only
if no other user can write to it; otherwise it is valid for the process alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mxrun import library
from mxrun.base import cache_files
from mxrun.base.errors import PYTHON, Diagnostic, SourceLocation, UserError
from mxrun.config import Parsed
from mxrun.config.bundled import bundled_configs
from mxrun.config.sources import PATHLESS
from mxrun.report.notes import write_note
from mxrun.train.run_directory import config_of, is_beside_results

_KIND = "plugins"
# Keys of what is trusted, and paths of plugins whose trust is noted.
_TRUSTED: set[str] = set()
_NOTED: set[str] = set()


class PluginTrust:
    """Decision whether the plugins of a config may run.

    named: the config's file, the run's folder, or the dictionary, as the user has named it. allow:
    also trust the plugins that are not the user's own choice.
    """

    def __init__(self, parsed: Parsed, named: Path | Mapping[str, Any], allow: bool) -> None:
        self._parsed, self._named, self._allow = parsed, named, allow

    def permit(self, named_at: SourceLocation, plugin: library.Plugin) -> None:
        """Return if a plugin may run, with a note unless the user chooses it now.

        named_at: position of the plugin's name. Raises UserError if the user has not chosen it.
        """
        stranger = self._stranger(named_at)
        if stranger is None or self._allow:
            remember(plugin, notes_failure=stranger is not None)
        elif not _is_trusted(plugin):
            raise UserError(self._question(named_at, plugin, stranger))
        elif plugin.path not in _NOTED:
            _NOTED.add(plugin.path)
            write_note(
                f"the plugin {plugin.path} runs, which {stranger} names: you have run or allowed "
                f"this content before{_how_to_forget(plugin)}"
            )

    def _stranger(self, named_at: SourceLocation) -> str | None:
        """Return the folder or file through which a plugin is named that is not the user's choice.

        None if there is none.
        """
        if named_at.file in PATHLESS:
            return None
        if isinstance(self._named, Path) and self._named.is_dir():
            return f"the folder {self._named}"
        # Each extends the next one, down to the file that names the plugin.
        files = self._parsed.expanded.files if self._parsed.expanded is not None else ()
        chain = files[: files.index(named_at.file) + 1]
        own = _folder_of(chain[0])
        others = (file for file in chain if not _is_in(own, file))
        return next((f"{file}, not a config of yours," for file in others), None)

    def _question(
        self, named_at: SourceLocation, plugin: library.Plugin, stranger: str
    ) -> Diagnostic:
        command = "allow_plugins=True of mxrun.load"
        if isinstance(self._named, Path):
            command = f"`mxrun check {config_of(self._named)} --allow-plugins`"
        return Diagnostic(
            f"the plugin {plugin.path} was never run by you with this content, and "
            f"{stranger} names it",
            named_at,
            expected="a file that a config of yours names, or that you have allowed, unchanged",
            got=f"a file of {_owner_of(plugin.path)}, SHA-256 {plugin.sha256[:16]}...",
            hint=f"read it first: it runs with all your permissions; {command} trusts it from then "
            "on",
        )


def remember(plugin: library.Plugin, notes_failure: bool = False) -> None:
    """Record the content of a plugin at its path as trusted.

    notes_failure: note if it cannot be recorded.
    """
    key = _key(plugin)
    _TRUSTED.add(key)
    if cache_files.read(_KIND, key) is not None:
        return
    content = f"{plugin.sha256} {plugin.path}\n".encode(errors="surrogateescape")
    if cache_files.write(_KIND, key, content) is None and notes_failure:
        write_note(
            f"the plugin {plugin.path} is trusted in this process only: that cannot be recorded in "
            f"{cache_files.root() or 'a cache folder, as there is none'}"
        )


def _is_trusted(plugin: library.Plugin) -> bool:
    key = _key(plugin)
    return key in _TRUSTED or cache_files.read(_KIND, key) is not None


def _key(plugin: library.Plugin) -> str:
    """Return the name of a record: a hash of the file's path, without links, and of its content."""
    return hashlib.sha256(
        f"{os.path.realpath(plugin.path)}\0{plugin.sha256}".encode(errors="surrogateescape")
    ).hexdigest()


def _how_to_forget(plugin: library.Plugin) -> str:
    folder = cache_files.root()
    recorded = None if folder is None else folder / _KIND / _key(plugin)
    return f" (to be asked again, remove {recorded})" if recorded and recorded.exists() else ""


def _folder_of(file: str) -> str:
    """Return the folder of a config without links, or the working folder for a dictionary."""
    return os.path.realpath("." if file == PYTHON else os.path.dirname(file) or ".")


def _is_in(own: str, file: str) -> bool:
    """Return whether a config is a dictionary, bundled, or a file in the folder `own` itself.

    A link to a file elsewhere is not; neither is the config that a run has saved with its results.
    """
    if file == PYTHON:
        return True
    path = Path(os.path.realpath(file))
    if path in map(Path.resolve, bundled_configs().values()):
        return True
    return str(path.parent) == own and not any(map(is_beside_results, {Path(file), path}))


def _owner_of(path: str) -> str:
    """Return the name of a file's owner, or the user number if the system has no name."""
    try:
        return Path(path).owner()
    except KeyError:
        return f"user {Path(path).stat().st_uid}"
    except OSError:
        return "an unknown user"
