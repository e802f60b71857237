"""What can go wrong, as values: a place in a file, a diagnostic, and the errors that carry them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from mxrun.base.near_names import nearest

__all__ = [
    "MAX_SHOWN",
    "Diagnostic",
    "InternalError",
    "MxrunError",
    "OperatorErrorContext",
    "OperatorRaised",
    "SourceLocation",
    "Stopped",
    "UserError",
    "nearest",
    "shown",
]

MAX_SHOWN = 20
"""Diagnostics of one error that are shown; of more it is said how many there are."""


@dataclass(frozen=True, order=True)
class SourceLocation:
    """A position in a text file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One thing wrong with the user's input.

    `problem` says what is wrong, `expected` and `got` the two sides of it, `hint` what to do next,
    `chain` the inferences that led here, oldest first.
    """

    problem: str
    place: SourceLocation | None = None
    expected: str = ""
    got: str = ""
    hint: str = ""
    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.problem}" if self.place else self.problem]
        lines += [f"  because {reason}" for reason in self.chain]
        if self.expected:
            lines.append(f"  expected: {self.expected}")
        if self.got:
            lines.append(f"  got: {self.got}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def shown(diagnostics: Sequence[Diagnostic]) -> list[str]:
    """The texts of the first diagnostics, and of many how many more there are."""
    texts = [str(diagnostic) for diagnostic in diagnostics[:MAX_SHOWN]]
    more = len(diagnostics) - MAX_SHOWN
    if more > 0:
        texts.append(f"and {more} more {'problems' if more > 1 else 'problem'}")
    return texts


class MxrunError(Exception):
    """Base of every error that mxrun raises on purpose; `exit_code` is the process's."""

    exit_code = 1


class UserError(MxrunError):
    """The user's input cannot be used: carries every diagnostic found in one pass."""

    exit_code = 2

    def __init__(self, diagnostics: Diagnostic | str | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, str):
            diagnostics = Diagnostic(diagnostics)
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(shown(self.diagnostics)))


class Stopped(MxrunError):
    """A signal asked the run to stop; everything is saved and it can be resumed."""

    exit_code = 75


class InternalError(MxrunError):
    """A promise of mxrun's own code is broken; never the user's fault."""


class OperatorRaised(Exception):
    """An operator's own code raised what this error is raised from, at work for a network's node.

    node: the node's operator and name; place: where the config has it.
    """

    def __init__(self, node: str, place: SourceLocation | None) -> None:
        self.node = node
        self.place = place
        super().__init__(f"{node} at {place}" if place else node)


class OperatorErrorContext:
    """Within its block, what operators raise says for which node; mxrun's errors pass as they are.

    SystemExit too is theirs: it would end the run as if all was well. Raises OperatorRaised from
    what was raised.
    """

    def __init__(self, node: str, place: SourceLocation | None) -> None:
        self._said = node, place

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, (MxrunError, OperatorRaised)):
            return
        if isinstance(error, (Exception, SystemExit)):
            raise OperatorRaised(*self._said) from error
