"""Users' operator files: those that a config names, and operators named as FILE:NAME."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from mxrun import library
from mxrun.base.errors import Diagnostic, SourceLocation, UserError, nearest
from mxrun.config import Parsed, RunConfig
from mxrun.config.sources import COMMAND_LINE
from mxrun.operator.register import OPERATORS
from mxrun.session.trusted_plugins import is_known, owner_of, remember
from mxrun.train.run_directory import is_run_config

_SUFFIX = ".py"


def load_plugins(parsed: Parsed, config: str | Path, allow: bool = False) -> None:
    """Run the plugins of the config in the file `config`.

    allow: also those that the config in a run's folder names and this user never ran before.
    Raises UserError for those that cannot be loaded or must not be run, with all else that is wrong
    with the config.
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
    """Raise UserError for a plugin that a run's folder asks to run and this user does not know.

    A file that a user's own config, command line or flag names is known from then on. What the
    config in a run's folder extends was not chosen by who opens that folder either.
    """
    asking = {Path(named_at.file), *((config,) if named_at.file != COMMAND_LINE else ())}
    if allow or not any(map(is_run_config, asking)):
        remember(plugin.sha256, plugin.path)
    elif not is_known(plugin.sha256):
        raise UserError(
            Diagnostic(
                f"the plugin {plugin.path} was never run by you as it is now, and a run's folder "
                "asks to run it",
                named_at,
                expected="a file that a config of yours has named, unchanged since",
                got=f"a file of {owner_of(plugin.path)}, SHA-256 {plugin.sha256[:16]}...",
                hint="read it: it can do whatever you can; "
                f"`mxrun check {config} --allow-plugins` lets it run from then on",
            )
        )


def plugin_hashes(config: RunConfig) -> dict[str, str]:
    """The SHA-256 of each plugin of a config, by the file's name, as it was when it was run."""
    loaded = (library.load_plugin(path) for path in config.plugins)
    names = (path.replace("\\", "/").rpartition("/")[2] for path in config.plugins)
    return dict(zip(names, (plugin.sha256 for plugin in loaded), strict=True))


def plugin_differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Plugins that are new, gone or have another SHA-256 than they had, one line each."""
    found = []
    for name in sorted({*saved, *now}):
        if name not in saved:
            found.append(f"plugins: {name} is new")
        elif name not in now:
            found.append(f"plugins: {name} is not there any more")
        elif saved[name] != now[name]:
            found.append(f"plugins: the code of {name} is not the same")
    return found


def named_operator(target: str) -> str:
    """The registered name that NAME or FILE:NAME means; the file is run first.

    Raises UserError where there is no such operator, naming those that the file registers.
    """
    library.load()
    file, colon, name = target.rpartition(":")
    if not colon and target.endswith(_SUFFIX):
        file, name = target, ""
    if not file.endswith(_SUFFIX):
        return target
    plugin = library.load_plugin(file)
    own = [each for each in OPERATORS if OPERATORS.get(each).__module__ == plugin.module]
    if name not in own:
        listed = ", ".join(f"{file}:{each}" for each in own)
        raise UserError(
            Diagnostic(
                f"{file} registers no operator {name!r}" if name else "which operator of the file?",
                expected=listed or "a class decorated with @register",
                got=target,
                hint=nearest(name, own),
            )
        )
    return name
