"""Implementation of `show`: bundled configs as starts for one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.commands.check import check
from mxrun.config import load_config
from mxrun.config.bundled import bundled_configs, find_config


@dataclass(frozen=True)
class BundledConfig:
    """Bundled config: its name, the first line of its comment, its data set and its size.

    inputs: shapes of a sample by input. parameters: number of elements.
    """

    name: str
    about: str
    dataset: str
    inputs: dict[str, Shape]
    parameters: int

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


def bundled() -> tuple[BundledConfig, ...]:
    """Return all bundled configs, smallest first."""
    rows = (_row(name, path) for name, path in bundled_configs().items())
    return tuple(sorted(rows, key=lambda row: (row.parameters, row.name)))


def text_of(name: str, resolved: bool = False) -> str:
    """Return the YAML of a bundled config, or of a config file.

    resolved: expanded, with all that it extends and without blocks and expressions. Raises
    UserError with the nearest names for an unknown one, and for a file that cannot be read.
    """
    path = find_config(name)
    if resolved:
        return load_config(path).resolved()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(Diagnostic(f"cannot read {path}: {reason}")) from error


def _row(name: str, path: Path) -> BundledConfig:
    config = load_config(path)
    return BundledConfig(
        name=name,
        about=_about(path),
        dataset=config.data.train.dataset,
        inputs=dict(config.network.inputs),
        parameters=check(path).parameters,
    )


def _about(path: Path) -> str:
    """Return the first line of the comment with which a config begins."""
    first, _, _ = path.read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("#").strip()
