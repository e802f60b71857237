"""Failures of pushed functions, and the error in which waits raise them."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import MxrunError, OperatorRaised

_MAX_LISTED = 10


@dataclass(frozen=True, eq=False)
class Failure:
    """Exception that a pushed function has raised.

    job: the function's name. sequence: its number in the order of pushing.
    """

    job: str
    sequence: int
    error: BaseException

    def __str__(self) -> str:
        error, where = self.error, ""
        if isinstance(error, OperatorRaised) and error.__cause__ is not None:
            # A program has many operators; an imperative operator is the job itself.
            where = "" if error.node.startswith(self.job) else f" in {error}"
            error = error.__cause__
        text = str(error) or type(error).__name__
        return f"{self.job} failed{where}: {text}"


class JobError(MxrunError):
    """Failures of one or more pushed functions; the first one's exception is the `__cause__`.

    failures: in the order of pushing, at least one. exit_code: that of the first exception, if it
    has one.
    """

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        first = self.failures[0].error
        self.exit_code = first.exit_code if isinstance(first, MxrunError) else 1
        lines = [str(failure) for failure in self.failures[:_MAX_LISTED]]
        more = len(self.failures) - _MAX_LISTED
        if more > 0:
            lines.append(f"and {more} more")
        super().__init__("\n".join(lines))
        self.__cause__ = first
