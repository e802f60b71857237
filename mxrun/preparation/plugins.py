"""Plugins: users' operator files named by a config, and operators named as FILE:NAME."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mxrun import library
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.config import Parsed, RunOptions
from mxrun.operator.register import OPERATORS
from mxrun.preparation.trusted_plugins import PluginTrust, remember

_SUFFIX = ".py"


def load_plugins(parsed: Parsed, named: Path | Mapping[str, Any], allow: bool = False) -> None:
    """Load the plugins of the config that the user has named by a file, a folder or a dictionary.

    allow: also those that are not the user's choice, see `trusted_plugins`. Raises UserError for
    plugins that cannot be loaded or are not trusted, with all other diagnostics of the config.
    """
    problems: list[Diagnostic] = []
    trust = PluginTrust(parsed, named, allow)
    for path, place in parsed.plugins.items():
        try:
            library.load_plugin(path, place, partial(trust.permit, place))
        except UserError as error:
            problems += error.diagnostics
    if problems:
        raise UserError([*parsed.diagnostics, *problems])


def plugin_hashes(options: RunOptions) -> dict[str, str]:
    """Return the SHA-256 of each plugin of a config as it was loaded, by file name."""
    loaded = (library.loaded_plugin(path) for path in options.plugins)
    names = (path.replace("\\", "/").rpartition("/")[2] for path in options.plugins)
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
    file, colon, name = target.rpartition(":")
    if not colon and target.endswith(_SUFFIX):
        file, name = target, ""
    if not file.endswith(_SUFFIX):
        return target
    plugin = library.load_plugin(file, None, remember)
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
