"""Users' operator files: those that a config names, and operators named as FILE:NAME."""

from __future__ import annotations

from mxrun import library
from mxrun.base.errors import Diagnostic, UserError, nearest
from mxrun.config import Parsed, RunConfig
from mxrun.operator.register import OPERATORS

_SUFFIX = ".py"


def load_plugins(parsed: Parsed) -> None:
    """Run the plugins of a config.

    Raises UserError for those that cannot be loaded, with all else that is wrong with the config.
    """
    problems: list[Diagnostic] = []
    for path, place in parsed.plugins.items():
        try:
            library.load_plugin(path, place)
        except UserError as error:
            problems += error.diagnostics
    if problems:
        raise UserError([*parsed.diagnostics, *problems])


def plugin_hashes(config: RunConfig) -> dict[str, str]:
    """The SHA-256 of each plugin of a config, by the file's name, as it was when it was run."""
    loaded = (library.load_plugin(path) for path in config.plugins)
    names = (path.replace("\\", "/").rpartition("/")[2] for path in config.plugins)
    return dict(zip(names, (plugin.sha256 for plugin in loaded), strict=True))


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
