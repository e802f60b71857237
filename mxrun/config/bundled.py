"""Bundled configs by name."""

from __future__ import annotations

import os.path
from importlib.resources import files
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.config.foreign_files import foreign_weights

_PACKAGE = "mxrun.configs"
_SUFFIX = ".yaml"
SAVED = "config.yaml"
"""Name of a run's config in its folder."""


def bundled_configs() -> dict[str, Path]:
    """Return the bundled configs' paths by name; raises UserError if mxrun is not installed."""
    try:
        folder = files(_PACKAGE)
    except ModuleNotFoundError as error:
        hint = "in a checkout run `pip install -e .` first"
        raise UserError(Diagnostic(f"{_PACKAGE} is not installed", hint=hint)) from error
    paths = (Path(str(entry)) for entry in folder.iterdir())
    return {path.stem: path for path in sorted(paths) if path.suffix == _SUFFIX}


def bundled_config(name: str) -> Path | None:
    """Return the path of the bundled config of that name, with or without .yaml, or None."""
    return bundled_configs().get(name.removesuffix(_SUFFIX))


def is_config(name: str) -> bool:
    """Return whether there is a file or a bundled config of that name."""
    return os.path.isfile(name) or bundled_config(name) is not None


def find_config(name: str, otherwise: str = "") -> Path:
    """Return the path of a config file, or of the bundled config of that name.

    otherwise: what else the caller would have accepted. Raises UserError, listing the bundled
    names, if neither exists.
    """
    if os.path.isfile(name):
        return Path(name)
    if (found := bundled_config(name)) is not None:
        return found
    bundled, stem = bundled_configs(), name.removesuffix(_SUFFIX)
    problem = f"{name} is a folder" if os.path.isdir(name) else f"there is no config {name!r}"
    saved = os.path.join(name, SAVED)
    hint = f"write {saved}" if os.path.isfile(saved) else foreign_weights(name)[1]
    hint = hint or nearest(Path(stem).name, bundled)
    raise UserError(
        Diagnostic(
            problem,
            expected=f"{otherwise}a YAML file, or a bundled config: {', '.join(bundled)}",
            hint=hint,
        )
    )
