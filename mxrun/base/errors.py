"""Errors, diagnostics and source locations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from mxrun.base.dataclass import dataclass

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_SHOWN = 20
"""Maximum number of diagnostics shown for one error; the others are only counted."""

PYTHON = "<python>"
"""File of the positions of values that Python code gives."""


@dataclass(frozen=True, order=True)
class SourceLocation:
    """Position in a text file; lines and columns count from 1.

    key: the dotted key of a value that Python code gives, in `PYTHON`, where lines only number the
    values.
    """

    file: str
    line: int
    column: int
    key: str = ""

    def __str__(self) -> str:
        return self.key or f"{self.file}:{self.line}:{self.column}"


def location_of(function: Callable[..., object]) -> SourceLocation:
    """Return the first line of a Python function's source, beneath its decorators' wrappers."""
    code = inspect.unwrap(function).__code__
    return SourceLocation(code.co_filename, code.co_firstlineno, 1)


@dataclass(frozen=True)
class Diagnostic:
    """One problem with the user's input.

    problem: the problem itself; expected, got: the two sides of a mismatch; hint: the next action;
    chain: the inferences that led to the problem, oldest first.
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
            # A list begins on the next line.
            lines.append(f"  got:{'' if self.got.startswith(chr(10)) else ' '}{self.got}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class Diagnostics:
    """Collector of the problems of one input, which are reported together.

    unknown: places of values that could not be determined and have a stand-in: what is added there
    follows from an earlier problem. It is counted by `len`, but not reported.
    """

    def __init__(
        self, found: Iterable[Diagnostic] = (), unknown: Iterable[SourceLocation] = ()
    ) -> None:
        self._found = list(found)
        self._consequences = 0
        self.unknown = set(unknown)

    def add(self, diagnostic: Diagnostic) -> None:
        """Append one problem."""
        if diagnostic.place in self.unknown:
            self._consequences += 1
        else:
            self._found.append(diagnostic)

    def __iadd__(self, diagnostics: Iterable[Diagnostic]) -> Self:
        for each in diagnostics:
            self.add(each)
        return self

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found) + self._consequences


def shown(diagnostics: Sequence[Diagnostic]) -> list[str]:
    """Return the texts of the first `MAX_SHOWN` diagnostics, and the number of the others."""
    texts = [str(diagnostic) for diagnostic in diagnostics[:MAX_SHOWN]]
    more = len(diagnostics) - MAX_SHOWN
    if more > 0:
        texts.append(f"and {more} more {'problems' if more > 1 else 'problem'}")
    return texts


class MxrunError(Exception):
    """Base class of every error that mxrun raises on purpose; `exit_code` is the process's."""

    exit_code = 1


class UserError(MxrunError):
    """Error in the user's input, with every diagnostic found in one pass."""

    exit_code = 2

    def __init__(self, diagnostics: Diagnostic | str | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, str):
            diagnostics = Diagnostic(diagnostics)
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(shown(self.diagnostics)))


class Stopped(MxrunError):
    """Stop of a run by a signal; everything is saved and the run can be resumed."""

    exit_code = 75


class InternalError(MxrunError):
    """Violation of an invariant of mxrun's own code; never the user's fault."""


class OperatorRaised(Exception):
    """Exception in an operator's code, with the node that ran; the original is its `__cause__`.

    node: the node's operator and name; place: its position in the config.
    """

    def __init__(self, node: str, place: SourceLocation | None) -> None:
        self.node = node
        self.place = place
        super().__init__(f"{node} at {place}" if place else node)


class OperatorErrorContext:
    """Context manager that adds the node's name to exceptions raised by operator code.

    Raises OperatorRaised from the original exception. mxrun's own errors propagate unchanged.
    SystemExit is converted too, because it would end the run as if it had succeeded.
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
