"""`--batch max`: the largest batch that fits into memory, found by planning alone.

Batches are planned whole: with `memory.micro_batches` any batch would fit of which one sample does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mxrun.base.errors import Diagnostic, UserError
from mxrun.compiler.compile import CompileRequest, compile_plan
from mxrun.frontend import ModelDefinition
from mxrun.graph.symbol import Symbol
from mxrun.planner.remat.budget import Budget
from mxrun.runtime.storage import available_bytes, memory_limit
from mxrun.session.planning import Say, load, request_for, silent

# Samples per step, or as many as fit.
BatchSize = int | Literal["max"]
MAX: Literal["max"] = "max"

# The end of the search: no config may have more.
_MAX_BATCH = (1 << 31) - 1
# Of free memory, the part that is left for what lies outside of the plan.
_OUTSIDE = 1 / 8
# So many sizes are looked for on a line; where that leads nowhere, in the middle.
_STRAIGHT = 6


def max_batch_size(
    batch: BatchSize | None,
    path: str | Path,
    overrides: Sequence[str],
    training: bool,
    threads: int | None = None,
    say: Say = silent,
) -> int | None:
    """The batch size that is asked for; where that is `max`, the largest that fits."""
    if batch != MAX:
        return batch

    def asked(size: int) -> tuple[Symbol, CompileRequest]:
        built = load(path, overrides, size)
        return built.model.symbol, request_for(built, training, threads)

    return largest_batch(load(path, overrides, 1), asked, say)


def largest_batch(
    built: ModelDefinition, asked: Callable[[int], tuple[Symbol, CompileRequest]], say: Say = silent
) -> int:
    """The largest batch whose plan fits into the config's budget, or else into free memory.

    asked: what is planned, by the size of a batch. `say` hears what was found.
    Raises UserError where not even one sample fits.
    """
    limit = _limit(built)

    def needed(size: int) -> int:
        symbol, request = asked(size)
        budget = request.budget and Budget(least=True)
        return compile_plan(symbol, replace(request, budget=budget)).planned_bytes

    first = needed(1)
    if first > limit:
        raise UserError(
            Diagnostic(
                "not even a batch of one sample fits into memory",
                place=built.config.place("memory", "budget"),
                expected=f"at least {first:,} bytes",
                got=f"{limit:,} bytes",
            )
        )
    found = search(needed, first, limit)
    say(f"--batch max: {found} samples fit into {limit:,} bytes")
    return found


def search(needed: Callable[[int], int], first: int, limit: int) -> int:
    """The largest batch, 1 or more, that needs at most `limit` bytes; `first` is what 1 needs.

    What a batch needs is nearly a straight line over its size, so the next size to look at lies on
    the line through two that are known, and a size beyond is looked at to be sure.
    """
    fits, fits_bytes, beyond = 1, first, _MAX_BATCH + 1
    slope = first / 2
    looked = 0
    while beyond - fits > 1:
        guess = fits + max(1, int((limit - fits_bytes) / max(slope, 1.0)))
        if looked >= _STRAIGHT and beyond <= _MAX_BATCH:
            guess = (fits + beyond) // 2
        guess = min(guess, beyond - 1)
        size = needed(guess)
        looked += 1
        slope = (size - fits_bytes) / (guess - fits)
        if size <= limit:
            fits, fits_bytes = guess, size
        else:
            beyond = guess
    return fits


def _limit(built: ModelDefinition) -> int:
    """The bytes that the arena may have."""
    asked = built.config.memory.budget
    if asked is None:
        return int(available_bytes() * (1 - _OUTSIDE))
    if asked.nbytes is None:
        raise UserError(
            Diagnostic(
                "--batch max needs a memory.budget in bytes, or none",
                place=built.config.place("memory", "budget"),
                expected="a size such as 2 GiB",
                got="a share of what a batch needs that is still to be found",
            )
        )
    return min(asked.nbytes, memory_limit())
