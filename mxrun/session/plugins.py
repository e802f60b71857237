"""Plugins: users' operator files named by a config, and operators named as FILE:NAME."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from mxrun import library
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import nearest
from mxrun.config import Parsed, RunConfig
from mxrun.config.sources import PATHLESS
from mxrun.operator.register import OPERATORS
from mxrun.session.trusted_plugins import is_known, owner_of, remember
from mxrun.train.run_directory import is_run_config

_SUFFIX = ".py"


def load_plugins(parsed: Parsed, config: str | Path, allow: bool = False) -> None:
    """Load the plugins of the config in the file `config`, or given as plain values in `PYTHON`.

    allow: also those named by the config of a run's folder that this user never ran before. Raises
    UserError for plugins that cannot be loaded or are not trusted, with all other diagnostics of
    the config.
    """
    problems: list[Diagnostic] = []
    for path, place in parsed.plugins.items():
        try:
            library.load_plugin(path, place, partial(_permit, Path(config), place, allow))
        except UserError as error:
            problems += error.diagnostics
    if problems:
        raise UserError([*parsed.diagnostics, *problems])


def _permit(config: Path, named_at: SourceLocation, allow: bool, plugin: library.Plugin) -> None:
    """Raise UserError for a plugin that a run's folder names and this user does not trust.

    A file that a user's own config, command line or flag names is trusted from then on. A file that
    the config in a run's folder extends is not the user's choice either.
    """
    asking = {Path(named_at.file), *((config,) if named_at.file not in PATHLESS else ())}
    if allow or not any(map(is_run_config, asking)):
        remember(plugin.sha256, plugin.path)
    elif not is_known(plugin.sha256):
        raise UserError(
            Diagnostic(
                f"the plugin {plugin.path} was never run by you in this version, but a run's "
                "folder names it",
                named_at,
                expected="a file that a config of yours has named, unchanged since",
                got=f"a file of {owner_of(plugin.path)}, SHA-256 {plugin.sha256[:16]}...",
                hint="read it first: it runs with all your permissions; "
                f"`mxrun check {config} --allow-plugins` trusts it from then on",
            )
        )


def plugin_hashes(config: RunConfig) -> dict[str, str]:
    """Return the SHA-256 of each plugin of a config as it was loaded, by file name."""
    loaded = (library.load_plugin(path) for path in config.plugins)
    names = (path.replace("\\", "/").rpartition("/")[2] for path in config.plugins)
    return dict(zip(names, (plugin.sha256 for plugin in loaded), strict=True))


def plugin_differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return new, missing and changed plugins (by SHA-256), one line each."""
    found = []
    for name in sorted({*saved, *now}):
        if name not in saved:
            found.append(f"plugins: {name} is new")
        elif name not in now:
            found.append(f"plugins: {name} is missing")
        elif saved[name] != now[name]:
            found.append(f"plugins: the code of {name} has changed")
    return found


def named_operator(target: str) -> str:
    """Return the registered name of NAME or FILE:NAME; the file is loaded first.

    Raises UserError naming the operators that the file registers if there is no such operator.
    """
    library.load()
    file, colon, name = target.rpartition(":")
    if not colon and target.endswith(_SUFFIX):
        file, name = target, ""
    if not file.endswith(_SUFFIX):
        return target
    plugin = library.load_plugin(file)
    registered = [each for each in OPERATORS if OPERATORS.get(each).__module__ == plugin.module]
    if name not in registered:
        listed = ", ".join(f"{file}:{each}" for each in registered)
        raise UserError(
            Diagnostic(
                f"{file} registers no operator {name!r}" if name else "which operator of the file?",
                expected=listed or "a class decorated with @register",
                got=target,
                hint=nearest(name, registered),
            )
        )
    return name
