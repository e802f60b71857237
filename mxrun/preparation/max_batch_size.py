"""Search for `--batch max`: the largest batch that fits into memory, by planning alone.

Batches are planned without micro-batches: with `memory.micro_batches` any batch would fit as soon
as one sample does. On several contexts the search is for the part of each, whose arenas share the
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.limits import MAX_BATCH
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.config import Parsed
from mxrun.frontend import ModelDefinition, build
from mxrun.graph.symbol import Symbol
from mxrun.options.shared import MAX, BatchSize
from mxrun.planner.remat.budget import Budget
from mxrun.preparation.device import kind_of
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import request_for
from mxrun.runtime.memory_limits import available_bytes, memory_limit

# Fraction of free memory that is left for memory outside the plan.
_RESERVED_SHARE = 1 / 8
# Sizes tried by linear extrapolation before the search bisects.
_EXTRAPOLATIONS = 6


def max_batch_size(
    batch: BatchSize | None,
    parsed: Parsed,
    training: bool,
    threads: int | None = None,
    notify: Notify = ignore_note,
) -> int | None:
    """Return the requested batch size, or for `max` the largest that fits."""
    if batch != MAX:
        return batch
    count = max(1, len(parsed.devices)) if training else 1

    def definition(part: int) -> ModelDefinition:
        built = build(parsed, part * count)
        return built.divided() if training else built

    def compile_request(part: int) -> tuple[Symbol, CompileRequest]:
        built = definition(part)
        return built.model.symbol, request_for(built, training, threads)

    return largest_batch(definition(1), compile_request, notify)


def largest_batch(
    built: ModelDefinition,
    compile_request: Callable[[int], tuple[Symbol, CompileRequest]],
    notify: Notify = ignore_note,
) -> int:
    """Return the largest batch whose plan fits into the config's budget, or else into free memory.

    compile_request: returns the symbol and the request to plan for a batch size, on several
    contexts for that of each one's part. notify: receives the result. Raises UserError if not even
    one sample fits, or one for each context.
    """
    limit, count = _limit(built), built.contexts

    def needed(part: int) -> int:
        symbol, request = compile_request(part)
        budget = request.budget and Budget(least=True)
        return count * compile_plan(symbol, replace(request, budget=budget)).planned_bytes

    first = needed(1)
    if first > limit:
        smallest = "one sample" if count == 1 else f"{count} samples, one for each context,"
        raise UserError(
            Diagnostic(
                f"not even a batch of {smallest} fits into memory",
                place=built.options.place("memory", "budget"),
                expected=f"at least {first:,} bytes",
                got=f"{limit:,} bytes",
            )
        )
    largest = count * search(needed, first, limit, MAX_BATCH // count)
    notify(f"--batch max: {largest} samples fit into {limit:,} bytes")
    return largest


def search(needed: Callable[[int], int], first: int, limit: int, largest: int = MAX_BATCH) -> int:
    """Return the largest batch size, from 1 to `largest`, that needs at most `limit` bytes.

    first: the bytes that a batch of 1 needs. The bytes grow nearly linearly with the batch, so the
    next size to try is on the line through the last two results; a larger size that does not fit
    confirms the result.
    """
    fits, fits_bytes, beyond = 1, first, largest + 1
    slope = first / 2
    trials = 0
    while beyond - fits > 1:
        candidate = fits + max(1, int((limit - fits_bytes) / max(slope, 1.0)))
        if trials >= _EXTRAPOLATIONS and beyond <= largest:
            candidate = (fits + beyond) // 2
        candidate = min(candidate, beyond - 1)
        size = needed(candidate)
        trials += 1
        slope = (size - fits_bytes) / (candidate - fits)
        if size <= limit:
            fits, fits_bytes = candidate, size
        else:
            beyond = candidate
    return fits


def _limit(built: ModelDefinition) -> int:
    """Return the limit of all arenas in bytes. Raises UserError for a budget given as a share.

    Cards have memories of their own, of which the smallest counts for each.
    """
    budget, kind = built.options.memory.budget, kind_of(built.options)
    own = [kind.memory_bytes(index) for _, index in built.options.devices[: built.contexts]]
    free = min((each[0] * built.contexts for each in own if each), default=None)
    if budget is None:
        return int((available_bytes() if free is None else free) * (1 - _RESERVED_SHARE))
    if budget.nbytes is None:
        raise UserError(
            Diagnostic(
                "--batch max needs a memory.budget in bytes, or none",
                place=built.options.place("memory", "budget"),
                expected="a size such as 2 GiB",
                got="a share of what a batch needs that is still to be found",
            )
        )
    return min(budget.nbytes, memory_limit() if free is None else free)
