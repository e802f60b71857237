"""Versions, processor, libraries and caches of this installation."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

from mxrun import __version__
from mxrun.backend.onednn import library as onednn
from mxrun.backend.team import available_cores, openmp
from mxrun.base import cache_files
from mxrun.runtime.machine import processor_model

# Libraries whose versions may change results or speed.
_LIBRARIES = ("numpy", "llvmlite", "pydantic", "pillow", "safetensors")
_OPTIONAL = ("torch", "onnxruntime", "openvino")
# Permissions that the user has given; they are no results that can be computed again.
_RETAINED_KINDS = frozenset({"plugins"})


def info() -> dict[str, Any]:
    """Return versions, processor, libraries and caches as JSON.

    A library that is not installed is null.
    """
    import llvmlite.binding as llvm

    folder = cache_files.root()
    return {
        "mxrun": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "processor": {
            "model": processor_model(),
            "code_generated_for": llvm.get_host_cpu_name(),
            "cores": available_cores(),
        },
        "libraries": {
            **{name: _version(name) for name in (*_LIBRARIES, *_OPTIONAL)},
            "llvm": ".".join(map(str, llvm.llvm_version_info)),
            "onednn": onednn.version() if onednn.load() is not None else None,
            "openmp": "libgomp" if openmp() is not None else None,
        },
        "notes": [reason] if (reason := onednn.reason()) else [],
        "cache": {
            "folder": None if folder is None else str(folder),
            "kinds": [
                {"kind": kind, "files": files, "bytes": nbytes}
                for kind, (files, nbytes) in cache_files.usage().items()
            ],
        },
    }


def clear_caches() -> dict[str, Any]:
    """Remove compiled code, measurements and plans from the cache; return the numbers of files.

    Plugins that the user has allowed stay allowed. Raises UserError for a file that cannot be
    removed.
    """
    kinds = [kind for kind in cache_files.usage() if kind not in _RETAINED_KINDS]
    return {"cleared": {kind: cache_files.clear(kind) for kind in kinds}}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
