"""Versions, processor, libraries and caches of this installation."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from typing import Any

from mxrun import __version__
from mxrun.base import cache_files
from mxrun.base.device import CPU, GPU
from mxrun.codegen.processor import processor
from mxrun.device.registry import device_kind, device_kinds

# Libraries whose versions may change results or speed.
_LIBRARIES = ("numpy", "llvmlite", "pydantic", "pillow", "simplejpeg", "safetensors")
_OPTIONAL = ("torch", "onnxruntime", "openvino")
# Permissions that the user has given; they are no results that can be computed again.
_RETAINED_KINDS = frozenset({"plugins"})


def info() -> dict[str, Any]:
    """Return versions, processor, libraries and caches as JSON.

    A library that is not installed is null. Properties of a card are those that
    `--device-properties` reads; without cuDNN there are none.
    """
    import llvmlite.binding as llvm

    folder = cache_files.root()
    cpu, gpu = device_kind(CPU), device_kind(GPU)
    kinds = {name: device_kind(name) for name in device_kinds()}
    return {
        "mxrun": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "processor": {
            "model": cpu.model(0),
            "code_generated_for": processor().name,
            "cores": cpu.cores(),
        },
        "libraries": {
            **{name: _version(name) for name in (*_LIBRARIES, *_OPTIONAL)},
            "llvm": ".".join(map(str, llvm.llvm_version_info)),
            **{
                name: version
                for kind in kinds.values()
                for name, version in kind.libraries().items()
            },
        },
        "cards": [
            {
                "context": f"{GPU}:{index}",
                "model": gpu.model(index),
                "properties": json.loads(gpu.describe(index, 1).card or "{}"),
            }
            for index in range(gpu.count())
        ],
        "notes": [f"{name}: {note}" for name, kind in kinds.items() if (note := kind.missing())],
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
