"""Trusted plugins: files that this user has chosen to run, by the SHA-256 of their content.

They are recorded in the user's cache folder, which is used only if no other user can write to it.
Without it, trust is valid for the process alone.
"""

from __future__ import annotations

from pathlib import Path

from mxrun.base import cache_files

_KIND = "plugins"
_TRUSTED: set[str] = set()


def remember(sha256: str, path: str) -> None:
    """Record a plugin's content as trusted; the path is stored for human readers."""
    if sha256 not in _TRUSTED:
        _TRUSTED.add(sha256)
        if not _is_recorded(sha256):
            cache_files.write(_KIND, sha256, f"{path}\n".encode(errors="surrogateescape"))


def is_known(sha256: str) -> bool:
    """Return whether this user has chosen to run this content before."""
    return sha256 in _TRUSTED or _is_recorded(sha256)


def owner_of(path: str) -> str:
    """Return the name of a file's owner, or the user number if the system has no name."""
    try:
        return Path(path).owner()
    except KeyError:
        return f"user {Path(path).stat().st_uid}"
    except OSError:
        return "an unknown user"


def _is_recorded(sha256: str) -> bool:
    return cache_files.read(_KIND, sha256) is not None
