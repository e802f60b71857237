"""The plugin files that this user has chosen to run, by the SHA-256 of their content.

A record lies in the user's cache folder, which counts only where nobody else can write it. Where
there is none, what was chosen holds for the process.
"""

from __future__ import annotations

from pathlib import Path

from mxrun.base import cache_files

_KIND = "plugins"
_CHOSEN: set[str] = set()


def remember(sha256: str, path: str) -> None:
    """Remember a plugin's content; the path is noted for people who look the record up."""
    if sha256 not in _CHOSEN:
        _CHOSEN.add(sha256)
        if not _is_recorded(sha256):
            cache_files.write(_KIND, sha256, f"{path}\n".encode(errors="surrogateescape"))


def is_known(sha256: str) -> bool:
    """Whether this user has chosen to run this content before."""
    return sha256 in _CHOSEN or _is_recorded(sha256)


def owner_of(path: str) -> str:
    """Whose file it is, by name where the system has one."""
    try:
        return Path(path).owner()
    except KeyError:
        return f"user {Path(path).stat().st_uid}"
    except OSError:
        return "an unknown user"


def _is_recorded(sha256: str) -> bool:
    return cache_files.read(_KIND, sha256) is not None
