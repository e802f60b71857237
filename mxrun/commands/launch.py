"""Implementation of `launch`: training under mpirun, restarted when a process is lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sysconfig
from pathlib import Path
from types import FrameType

from mxrun.base.child_python import run_code
from mxrun.base.errors import Diagnostic, Stopped, UserError
from mxrun.config.bundled import find_config
from mxrun.frontend import ModelDefinition
from mxrun.options.launch import LaunchOptions
from mxrun.preparation.notes import Notify
from mxrun.preparation.planning import load
from mxrun.runtime.signals import handled_signals
from mxrun.train.checkpoint_manager import saved_steps

_DISTRIBUTED = "kvstore=dist_sync"
_PROGRAM = "import sys; from mxrun.__main__ import main; sys.exit(main())"


def launch(options: LaunchOptions, notify: Notify) -> int:
    """Train to the end, and return the exit code of the last attempt.

    Raises UserError for a config that so many ranks cannot train, and without mpirun.
    """
    built = load(find_config(options.config), options.overrides)
    overrides = options.overrides
    if not built.options.is_distributed:
        overrides = (*overrides, _DISTRIBUTED)
        built = load(find_config(options.config), overrides)
    built.on_ranks(options.ranks)
    return _Launch(options, overrides, built, notify).run()


class _Launch:
    """Attempts to train a run, one after the other."""

    def __init__(
        self,
        options: LaunchOptions,
        overrides: tuple[str, ...],
        built: ModelDefinition,
        notify: Notify,
    ) -> None:
        self._options, self._overrides, self._notify = options, overrides, notify
        self._built, self._folder = built, options.runs / built.options.name
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Start the ranks until they end by themselves, or too often."""
        options, ranks = self._options, self._options.ranks
        words = ["--overwrite"] if options.overwrite else ["--resume"] if options.resume else []
        with handled_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._stop):
            for restart in range(options.max_restarts + 1):
                before = self._newest()
                code = self._attempt(ranks, words)
                newest = self._newest()
                if self._is_stopping and code and newest is not None:
                    return Stopped.exit_code
                if code in (0, UserError.exit_code, Stopped.exit_code) or self._is_stopping:
                    return code
                if restart == options.max_restarts:
                    break
                if newest == before:
                    ranks = self._fewer(ranks)
                start = "the beginning" if newest is None else f"step {newest}"
                self._notify(
                    f"a process was lost (exit code {code}): restart {restart + 1} of "
                    f"{options.max_restarts} with {ranks} ranks from {start}"
                )
                words = ["--resume"]
        return code

    def _attempt(self, ranks: int, words: list[str]) -> int:
        """Train on a number of ranks and return the exit code, 128 and the signal for a signal."""
        options = self._options
        command = [
            *(_mpirun(), "-n", str(ranks)),
            *run_code(_PROGRAM, "train", str(find_config(options.config)), *self._overrides),
            *(*words, "--runs", str(options.runs), *(["--json"] if options.json else [])),
        ]
        # In a group of its own, a Ctrl-C reaches it only through this process.
        with subprocess.Popen(command, start_new_session=True) as self._process:
            code = self._process.wait()
        return code if code >= 0 else 128 - code

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ask all ranks to stop. Both MPICH and Open MPI pass SIGUSR1 on, and leave them time."""
        self._is_stopping = True
        if self._process is not None:
            self._process.send_signal(signal.SIGUSR1)

    def _newest(self) -> int | None:
        steps = saved_steps(self._folder)
        return steps[-1] if steps else None

    def _fewer(self, ranks: int) -> int:
        """Return half as many ranks, unless that is not allowed."""
        fewer = ranks // 2
        return fewer if fewer >= (self._options.min_ranks or ranks) else ranks


def _mpirun() -> str:
    """Return the program that starts ranks: beside Python or on the path; else raise UserError."""
    beside = Path(sysconfig.get_path("scripts"), "mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise UserError(
            Diagnostic(
                "there is no mpirun, which starts several processes",
                hint="pip install 'mxrun[dist]', or load the MPI of the cluster",
            )
        )
    return found
