"""Processes that a launcher of MPI has started together, as its environment variables tell.

They are known before MPI is loaded, which takes a while.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from mxrun.base.child_python import run_code
from mxrun.base.errors import Diagnostic, UserError

# Of MPICH and its relatives, of Open MPI.
_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
# Those of a job, and the variable that only the processes have which Slurm itself has started.
_SLURM_SIZE, _BY_SLURM = ("SLURM_NTASKS",), "PMIX_RANK"
_LOCAL_SIZE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
_PROGRAM = "import sys; from mxrun.__main__ import main; sys.exit(main())"


def launched_ranks() -> int:
    """Return the number of processes that were started together; 1 without a launcher."""
    return _number((*_SIZE, *(_SLURM_SIZE if _BY_SLURM in os.environ else ())))


def ranks_here() -> int:
    """Return the number of those processes on this machine."""
    return _number(_LOCAL_SIZE)


def mpirun() -> str:
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


def rank_command(count: int, words: Iterable[str]) -> list[str]:
    """Return what starts `count` ranks of the command of mxrun with these words.

    Raises UserError without mpirun.
    """
    return [mpirun(), "-n", str(count), *run_code(_PROGRAM, *words)]


def become_ranks(count: int, words: Iterable[str]) -> NoReturn:
    """Replace this process by what `rank_command` returns."""
    command = rank_command(count, words)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)


def _number(names: tuple[str, ...]) -> int:
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdecimal() and int(text)), 1)
