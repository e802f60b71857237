"""Violations of the operator contract, and comparison of arrays."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass

Array = npt.NDArray[Any]

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
# Folders whose code calls operators, or is called by them to read and store tensors.
_CALLERS = tuple(os.path.join(_PACKAGE, name, "") for name in ("contract", "device", "operator"))


@dataclass(frozen=True)
class Violation:
    """One violation of the operator contract.

    problem: one sentence that names the tensor; index: position in the tensor; expected, got: the
    two values there; hint: the remedy.
    """

    problem: str
    expected: str = ""
    got: str = ""
    hint: str = ""
    index: tuple[int, ...] | None = None

    def of(self, whose: str) -> Violation:
        """Return the violation with its problem prefixed by `whose`."""
        return replace(self, problem=f"{whose}: {self.problem}")

    def __str__(self) -> str:
        text = self.problem
        if self.index is not None:
            text += f" at {list(self.index)}"
        if self.expected:
            text += f": expected {self.expected}, got {self.got}"
        return f"{text}; {self.hint}" if self.hint else text


NO_CHANGE = (
    "compute into an output; what training changes is a state of list_state_updates or an input of "
    "list_mutated_inputs"
)


class Breach(Exception):
    """Violation of the contract by a call that makes its results meaningless."""

    def __init__(self, problem: Violation) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def attempting(action: str) -> Iterator[None]:
    """Context manager that converts exceptions of an operator into a Breach with a location."""
    try:
        yield
    except Breach:
        raise
    # User code may raise anything.
    except (Exception, SystemExit) as error:
        problem = f"{action} raises {type(error).__name__}: {_first_line(error)}"
        hint = f"see {_last_line(error)}"
        if isinstance(error, ValueError) and "read-only" in problem:
            hint += f"; inputs, and outputs with a null request, are read-only: {NO_CHANGE}"
        raise Breach(Violation(problem, hint=hint)) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "no message")


def _last_line(error: BaseException) -> str:
    """Return the location of an exception: the innermost frame of the operator, if any."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(_CALLERS)]
    frame = (outside or frames)[-1]
    return f"{frame.filename}:{frame.lineno} ({frame.name})"


def first_difference(
    got: Array, want: Array, relative: float = 0.0, absolute: float = 0.0
) -> tuple[int, ...] | None:
    """Return the first index at which `got` differs from `want`; None if they agree.

    Without tolerances all bits count; with tolerances NaNs are equal. The absolute tolerance is
    scaled by the largest finite magnitude of `want` if that exceeds 1.
    """
    if got.tobytes() == want.tobytes():
        return None
    if not relative and not absolute:
        size = got.dtype.itemsize
        pairs = (np.ascontiguousarray(a).view(np.uint8).reshape(-1, size) for a in (got, want))
        one, other = pairs
        unequal = (one != other).any(axis=1).reshape(got.shape)
    else:
        magnitude = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        with np.errstate(all="ignore"):
            close = np.isclose(got, want, relative, absolute * float(magnitude), equal_nan=True)
        unequal = ~close
    if not unequal.any():
        return None
    place = np.unravel_index(int(np.argmax(unequal)), unequal.shape)
    return tuple(int(i) for i in place)


def differing(
    problem: str,
    got: Array,
    want: Array,
    hint: str,
    relative: float = 0.0,
    absolute: float = 0.0,
) -> list[Violation]:
    """Return a violation at the first difference of two arrays; none if they agree."""
    index = first_difference(got, want, relative, absolute)
    if index is None:
        return []
    return [Violation(problem, number(want, index), number(got, index), hint=hint, index=index)]


def number(array: Array, index: tuple[int, ...]) -> str:
    """Return one element as text, with all significant digits."""
    return str(array[index].item())


def enumerated(names: Sequence[str]) -> str:
    """Return names as an enumeration: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
