"""Part of the proof: groups of facts, computed one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proof.installation import Facts, Installation


@dataclass(frozen=True)
class Part:
    """Groups by name, and the function that computes the facts of one.

    The folders of an installation hold what earlier groups left. Facts of both commits are computed
    at the same time, each in a process of its own.
    """

    names: Sequence[str]
    facts: Callable[[Installation, str], Facts]
