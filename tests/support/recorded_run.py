"""Run mxrun's command line with `recorded_files.c` preloaded, and mark in its trace what is saved.

Arguments: `recorded_run.py STEP ARGUMENTS...`. The trace notes the step of each checkpoint once the
program takes it for saved. The process is asked to stop at the first evaluation after STEP steps; 0
is never.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from doomed_run import Published, publish_steps, stop_in_evaluation

from mxrun.base.array_file import Arrays
from mxrun.train.checkpoint import RunState
from mxrun.train.checkpoint_manager import CheckpointManager


def mark_saves() -> None:
    """Mark the step of every checkpoint in the trace once it is saved."""
    mark = ctypes.CDLL(None).recorded_files_mark
    save = CheckpointManager.save

    def marked_save(self: CheckpointManager, state: RunState, groups: Mapping[str, Arrays]) -> Path:
        path = save(self, state, groups)
        mark(str(state.progress.step).encode())
        return path

    CheckpointManager.save = marked_save  # type: ignore[method-assign]


if __name__ == "__main__":
    stop, *rest = sys.argv[1:]
    mark_saves()
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(8))
        file.flush()
        published = Published(Path(file.name))
    if int(stop):
        publish_steps(published)
        stop_in_evaluation(published, int(stop))

    from mxrun.__main__ import main

    sys.argv = ["mxrun", *rest]
    sys.exit(main())
