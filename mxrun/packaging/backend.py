"""Build backend (PEP 517 and 660): that of setuptools, which finds the stubs beside their modules.

A checkout that is installed with `pip install -e` gets them too, for editors and type checkers.
"""

from __future__ import annotations

from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(*arguments: Any, **options: Any) -> str:
    """Write the stubs and build a wheel; return its name."""
    _write_stubs()
    return str(build_meta.build_wheel(*arguments, **options))


def build_editable(*arguments: Any, **options: Any) -> str:
    """Write the stubs and build a wheel that refers to the sources; return its name."""
    _write_stubs()
    return str(build_meta.build_editable(*arguments, **options))


def build_sdist(*arguments: Any, **options: Any) -> str:
    """Write the stubs and build an archive of the sources; return its name."""
    _write_stubs()
    return str(build_meta.build_sdist(*arguments, **options))


def _write_stubs() -> None:
    # Each question of an installer is a process; only those that build need the registry.
    from mxrun.packaging.operator_stubs import write_stubs

    write_stubs()
