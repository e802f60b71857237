"""Arguments of bind and simple_bind: gradient requests, and arrays in order or by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.operator.kernel import OpReqType

GradientRequests = str | Sequence[str] | Mapping[str, str]

_REQUESTS = {"write": OpReqType.WRITE, "add": OpReqType.ADD, "null": OpReqType.NULL}


def gradient_requests(given: GradientRequests, arguments: Sequence[str]) -> dict[str, OpReqType]:
    """Return the request of every argument; one that a mapping leaves out is null.

    Raises UserError for other requests than `write`, `add` and `null`, for a list of another length
    and for an unknown argument.
    """
    if isinstance(given, str):
        requests = dict.fromkeys(arguments, given)
    elif isinstance(given, Mapping):
        _require_known(given, arguments)
        requests = {name: given.get(name, "null") for name in arguments}
    else:
        if len(given) != len(arguments):
            expected, got = f"{len(arguments)}: {', '.join(arguments)}", str(len(given))
            raise UserError(Diagnostic("grad_req does not fit the arguments", None, expected, got))
        requests = dict(zip(arguments, given, strict=True))
    for name, request in requests.items():
        if request not in _REQUESTS:
            problem, expected = f"grad_req of {name!r}", "write, add or null"
            raise UserError(Diagnostic(problem, None, expected, repr(request)))
    return {name: _REQUESTS[request] for name, request in requests.items()}


def arrays_by_name(
    what: str,
    given: Sequence[Any] | Mapping[str, Any] | None,
    names: Sequence[str],
    may_lack: bool = False,
) -> dict[str, NDArrayBase]:
    """Return arrays by the names of their variables, without absent ones.

    what: name of the parameter for messages. may_lack: whether arrays may be absent. Raises
    UserError for a missing array, a list of another length, and for a value that is no array.
    """
    if given is None:
        found = {}
    elif isinstance(given, Mapping):
        found = {name: given[name] for name in names if given.get(name) is not None}
    else:
        if len(given) != len(names):
            expected, got = f"{len(names)}: {', '.join(names)}", str(len(given))
            raise UserError(Diagnostic(f"{what} does not fit the symbol", None, expected, got))
        pairs = zip(names, given, strict=True)
        found = {name: array for name, array in pairs if array is not None}
    missing = [name for name in names if name not in found]
    if missing and not may_lack:
        raise UserError(Diagnostic(f"{what} lacks {name!r}") for name in missing)
    for name, array in found.items():
        if not isinstance(array, NDArrayBase):
            problem, got = f"{what}: {name!r} is no array", type(array).__name__
            raise UserError(Diagnostic(problem, None, "NDArray", got))
    return found


def _require_known(given: Mapping[str, Any], names: Sequence[str]) -> None:
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UserError(
            Diagnostic(f"there is no argument {name!r}", hint=nearest(name, names))
            for name in unknown
        )
