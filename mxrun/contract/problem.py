"""What a check finds wrong: one sentence with both sides of it and what to do next."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_HERE = os.path.dirname(__file__)


@dataclass(frozen=True)
class Violation:
    """One way in which an operator breaks its contract.

    problem: what is wrong, in one sentence that names the tensor; index: where in the tensor;
    expected, got: the two values there; hint: what to do.
    """

    problem: str
    expected: str = ""
    got: str = ""
    hint: str = ""
    index: tuple[int, ...] | None = None

    def of(self, whose: str) -> Violation:
        """The same, saying first whose problem it is."""
        return replace(self, problem=f"{whose}: {self.problem}")

    def __str__(self) -> str:
        text = self.problem
        if self.index is not None:
            text += f" at {list(self.index)}"
        if self.expected:
            text += f": expected {self.expected}, got {self.got}"
        return f"{text}; {self.hint}" if self.hint else text


class Breach(Exception):
    """A call that broke the contract on the spot, so that its results mean nothing."""

    def __init__(self, problem: Violation) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextmanager
def attempting(what: str) -> Iterator[None]:
    """Turn whatever an operator raises within the block into a Breach that says where it did."""
    try:
        yield
    except Breach:
        raise
    # The code under test is the user's: there is no telling what it raises.
    except (Exception, SystemExit) as error:
        raise Breach(
            Violation(
                f"{what} raises {type(error).__name__}: {_first_line(error)}",
                hint=f"see {_last_line(error)}",
            )
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "no message")


def _last_line(error: BaseException) -> str:
    """Where an exception was raised: the last line outside of this package, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith(_HERE)]
    frame = (outside or frames)[-1]
    return f"{frame.filename}:{frame.lineno} ({frame.name})"


def first_difference(
    got: Array, want: Array, relative: float = 0.0, absolute: float = 0.0
) -> tuple[int, ...] | None:
    """Where `got` is not `want`: equal NaNs are equal, and without tolerance all bits count.

    The absolute tolerance grows with the largest finite magnitude of `want` beyond 1.
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
    """The problem of two arrays that should be alike; none where they are."""
    index = first_difference(got, want, relative, absolute)
    if index is None:
        return []
    return [Violation(problem, number(want, index), number(got, index), hint, index)]


def number(array: Array, index: tuple[int, ...]) -> str:
    """One element for people, with all the digits that tell it from its neighbours."""
    return str(array[index].item())


def enumerated(names: Sequence[str]) -> str:
    """Names as a sentence has them: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
