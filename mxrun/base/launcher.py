"""Processes that a launcher of MPI has started together, as its environment variables tell.

They are known before MPI is loaded, which takes a while.
"""

from __future__ import annotations

import os

# Of MPICH and its relatives, of Open MPI.
_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
# Those of a job, and the variable that only the processes have which Slurm itself has started.
_SLURM_SIZE, _BY_SLURM = ("SLURM_NTASKS",), "PMIX_RANK"
_LOCAL_SIZE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")


def launched_ranks() -> int:
    """Return the number of processes that were started together; 1 without a launcher."""
    return _number((*_SIZE, *(_SLURM_SIZE if _BY_SLURM in os.environ else ())))


def ranks_here() -> int:
    """Return the number of those processes on this machine."""
    return _number(_LOCAL_SIZE)


def _number(names: tuple[str, ...]) -> int:
    found = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in found if text.isdecimal() and int(text)), 1)
