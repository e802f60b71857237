"""Process that runs the transforms of plugins for a run's loader."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mxrun import library
from mxrun.base.child_python import run_code
from mxrun.io.loading.messages import SharedArrays
from mxrun.io.loading.transform_server import serve
from mxrun.runtime.numpy_threads import use_one_numpy_thread

# The modules of this process are found where those of its parent are.
_START = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from mxrun.run.transform_process import main; main(settings, sys.argv[2:])"
)


def command(plugins: Sequence[library.Plugin]) -> list[str]:
    """Return the command of a process that has loaded these plugins; descriptors are appended."""
    settings = {
        "path": sys.path,
        "plugins": [(plugin.path, plugin.sha256) for plugin in plugins],
    }
    return run_code(_START, json.dumps(settings))


def main(settings: Mapping[str, Any], descriptors: Sequence[str]) -> None:
    """Serve the connection and the memory with these descriptors until the lifeline is closed."""
    connection, memory, lifeline = map(int, descriptors)
    prepare = partial(_load, settings["plugins"])
    with socket.socket(fileno=connection) as connected:
        serve(connected, SharedArrays(memory), lifeline, prepare)


def _load(plugins: Sequence[tuple[str, str]]) -> None:
    """Load plugins whose content is the parent's; raises UserError if it has changed."""
    # The bits of matrix products depend on the number of threads.
    use_one_numpy_thread()
    for path, sha256 in plugins:
        library.load_unchanged(path, sha256)
