"""Ranks of a run: what they do together before and after the steps, and how they end.

An error of all ranks, or one that they have told each other, is reported by the first. Any other
error of one rank ends all at once: the others would wait for it for ever.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn, TypeVar

import numpy as np

from mxrun import __version__
from mxrun.base.errors import Diagnostic, MxrunError, Stopped, UserError
from mxrun.base.launcher import launched_ranks
from mxrun.config import RunOptions
from mxrun.run.resume import identity_differences, state_differences
from mxrun.run.run import Run
from mxrun.runtime.mpi import all_ranks
from mxrun.runtime.rank_watch import RankWatch
from mxrun.runtime.ranks import RankGroup
from mxrun.train.checkpoint import RunState
from mxrun.train.progress import Progress

_Result = TypeVar("_Result")
_UNEXPECTED = 1


def launched_group() -> RankGroup | None:
    """Return the processes that a launcher has started together; None for a single one.

    Raises UserError if messages between them cannot be sent.
    """
    return all_ranks() if launched_ranks() > 1 else None


def group_for(options: RunOptions, launched: RankGroup | None) -> RankGroup | None:
    """Return the ranks that a config's kvstore requires; None for a single process.

    Raises UserError if several processes were started for a kvstore of one.
    """
    if options.is_distributed:
        return launched or all_ranks()
    if launched is not None:
        raise UserError(
            Diagnostic(
                f"{launched.size} processes were started together, but kvstore: "
                f"{options.kvstore} is for one",
                options.place("kvstore"),
                "kvstore: dist_sync, or a single process",
                f"kvstore: {options.kvstore}",
                hint="add kvstore=dist_sync",
            )
        )
    return None


def agreed(ranks: RankGroup | None, function: Callable[[], _Result]) -> _Result:
    """Return the result of a function that every rank calls.

    If it raises an MxrunError on any rank, every rank raises one: its own, or that of the first.
    """
    if ranks is None or ranks.size == 1:
        return function()
    found: list[_Result] = []
    failed: MxrunError | None = None
    try:
        found.append(function())
    except MxrunError as error:
        failed = error
    texts = ranks.gather_texts("" if failed is None else str(failed))
    if not any(texts):
        return found[0]
    ranks.ends_together = True
    if failed is not None:
        raise failed
    rank = next(number for number, text in enumerate(texts) if text)
    raise UserError(f"rank {rank}: {texts[rank]}")


def by_first(launched: RankGroup | None, function: Callable[[], _Result]) -> _Result | None:
    """Return the result of a function that every rank calls, on the first, and None on the others.

    Where these raise an MxrunError they end with its exit code: the first one reports it.
    """
    is_first = launched is None or launched.rank == 0
    try:
        found = function()
    except MxrunError as error:
        if is_first:
            raise
        raise SystemExit(error.exit_code) from None
    return found if is_first else None


@contextmanager
def ending_together(ranks: RankGroup | None) -> Iterator[None]:
    """Context manager that ends all ranks on an error that the others do not know of."""
    try:
        yield
    except BaseException as error:
        if ranks is None or ranks.size == 1 or ranks.ends_together or isinstance(error, Stopped):
            raise
        _end_all(ranks, error)


def _end_all(ranks: RankGroup, error: BaseException) -> NoReturn:
    """Report an error of this rank and end the processes of all."""
    if not isinstance(error, MxrunError):
        traceback.print_exception(error)
    who = f"rank {ranks.rank} of {ranks.size}"
    sys.stderr.write(f"{type(error).__name__} on {who}, which ends all ranks: {error}\n")
    ranks.abort(getattr(error, "exit_code", _UNEXPECTED))


def require_same(ranks: RankGroup | None, run: Run) -> None:
    """Compare what decides on the bits of a run, and raise UserError if ranks differ in it."""
    if ranks is None or ranks.size == 1:
        return
    options, state = run.built.options, run.state(Progress(), due=True)
    own = json.dumps(
        {
            "facts": {
                "mxrun": __version__,
                "numpy": np.__version__,
                "train.epochs": options.train.epochs,
                "train.max_steps": options.train.max_steps,
            },
            "config": options.identity(run.keys_of_length),
            "state": state.model_dump_json(),
        }
    )
    first, *others = map(json.loads, ranks.gather_texts(own))
    problems = []
    for rank, other in enumerate(others, 1):
        differences = _differences(first, other)
        if differences:
            problems.append(
                Diagnostic(
                    f"rank {rank} would compute another run than rank 0",
                    expected="the same config, data, versions and kind of processor on all ranks",
                    got="\n    ".join(["", *differences]).rstrip(),
                )
            )
    if problems:
        ranks.ends_together = True
        raise UserError(problems)


def watched(ranks: RankGroup | None, run: Run) -> AbstractContextManager[object]:
    """Return a context manager in which all ranks end if one of them does not go on."""
    if ranks is None or ranks.size == 1 or run.agreement is None:
        return nullcontext()
    limit = run.built.options.rank_timeout
    return RankWatch(ranks.duplicate(), limit, run.agreement.activity)


def _differences(first: dict[str, Any], other: dict[str, Any]) -> Sequence[str]:
    """Return how a rank differs from the first one, one line each."""
    words = ("on rank 0", "here")
    found = [
        f"{name}: {value} {words[0]}, {other['facts'][name]} {words[1]}"
        for name, value in first["facts"].items()
        if value != other["facts"][name]
    ]
    found += identity_differences(first["config"], other["config"], words)
    named = {line.partition(":")[0] for line in found}
    states = [RunState.model_validate_json(each["state"]) for each in (first, other)]
    lines = state_differences(states[0], states[1], words)
    return found + [line for line in lines if line.partition(":")[0] not in named]
