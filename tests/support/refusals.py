"""Errors of bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mxrun.base.errors import Diagnostic, UserError


def only_problem(call: Callable[..., object], *arguments: Any, **named: Any) -> Diagnostic:
    """Return the one diagnostic of a call that refuses what it is given."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **named)
    (problem,) = caught.value.diagnostics
    return problem
