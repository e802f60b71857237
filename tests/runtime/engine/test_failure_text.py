"""Texts of failures."""

from __future__ import annotations

from mxrun.base.errors import OperatorRaised
from mxrun.runtime.engine.failure import Failure, JobError


def raised_by(operator: str, cause: Exception) -> OperatorRaised:
    error = OperatorRaised(operator, None)
    error.__cause__ = cause
    return error


def test_the_exception_of_an_operators_body_is_told() -> None:
    failure = Failure("where", 1, raised_by("where 'where1'", ValueError("no such case")))
    assert str(failure) == "where failed: no such case"
    error = JobError([failure, Failure("load", 2, KeyError())])
    assert str(error) == "where failed: no such case\nload failed: KeyError"
    assert error.__cause__ is failure.error
