"""Targets of generated code: this machine's processor, or a graphics card.

A card executes NVPTX, the instructions of NVIDIA's virtual machine, which its driver compiles. One
text for the oldest card serves all later ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum


class CodeTarget(Enum):
    """Family of instructions.

    CPU: the processor's; a vector is in a register. NVPTX: a card's; a vector of 16 lanes is in a
    register of each of 16 threads, half a warp, which run a task together.
    """

    CPU = "cpu"
    NVPTX = "nvptx"


_CURRENT = ContextVar("target", default=CodeTarget.CPU)


def target() -> CodeTarget:
    """Return the target of the code that is being generated."""
    return _CURRENT.get()


def is_card() -> bool:
    """Return whether the target is a graphics card."""
    return target() is CodeTarget.NVPTX


@contextmanager
def generating_for(chosen: CodeTarget) -> Iterator[None]:
    """Context in which this thread generates code for a target."""
    before = _CURRENT.set(chosen)
    try:
        yield
    finally:
        _CURRENT.reset(before)
