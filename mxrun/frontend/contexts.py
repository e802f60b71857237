"""Check that a network's batches can be divided among contexts, or into batch parts."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import RunOptions
from mxrun.frontend.micro_batches import coupled, coupling, one_batch_size
from mxrun.frontend.model import Model
from mxrun.frontend.training import TrainingSetup


def division_problems(options: RunOptions, model: Model) -> list[Diagnostic]:
    """Return diagnostics if equal parts of each batch cannot be computed apart.

    These are the parts of the contexts that a config lists, or its batch parts. They name the first
    layer that prevents it. Empty for undivided batches.
    """
    count, batch_size = divisor(options), options.data.batch_size
    if count == 1:
        return []
    key, hint = "context", "list a single context"
    in_parts = options.parts_of_batch > 1
    if in_parts:
        key, hint = "batch_parts", "write batch_parts: 1"
        problems = _alone(options)
        if problems:
            return problems
    if batch_size % count:
        return [indivisible(options, batch_size)]
    try:
        part = model.resized(batch_size // count)
        twice = part.resized(2 * part.batch_size)
    except UserError as error:
        return one_batch_size(error, key, hint)
    problem = Diagnostic(
        f"{key}: the batches of this network cannot be divided", options.key_place(key), hint=hint
    )
    return coupled(coupling(part, twice, may_mix=True, may_carry=in_parts), problem)


def shard_problems(options: RunOptions, training: TrainingSetup | None) -> list[Diagnostic]:
    """Return diagnostics if the states of this training cannot be shared out among ranks."""
    if options.shard == "none" or training is None:
        return []
    problem = None
    if not options.is_distributed:
        problem = "shard: states needs several processes", "add kvstore: dist_sync"
    elif training.average is not None:
        problem = (
            "shard: states cannot be used with train.average: each process evaluates with all "
            "averages",
            "leave out one of them",
        )
    elif not training.optimizer.is_elementwise:
        problem = (
            f"shard: states cannot be used with {training.optimizer.update}, whose updates depend "
            "on entire parameters",
            "leave out shard, or take an optimizer that updates each element by itself, such as "
            "adam",
        )
    if problem is None:
        return []
    return [Diagnostic(problem[0], options.key_place("shard"), hint=problem[1])]


def _alone(options: RunOptions) -> list[Diagnostic]:
    """Return a diagnostic for each other way to divide batches that is set beside batch parts."""
    settings = {
        "a list of contexts": (len(options.devices) > 1, ("context",)),
        "memory.micro_batches": (
            options.memory.micro_batches,
            ("memory", "micro_batches"),
        ),
        "train.accumulate": (options.train.accumulate > 1, ("train", "accumulate")),
    }
    return [
        Diagnostic(
            f"batch parts (batch_parts, or kvstore: {options.kvstore}) cannot be used with "
            f"{setting}",
            options.key_place(*path),
            hint="leave out one of them",
        )
        for setting, (is_set, path) in settings.items()
        if is_set
    ]


def divisor(options: RunOptions) -> int:
    """Return the number of equal parts of a batch that contexts or batch parts require."""
    return len(options.devices) * options.parts_of_batch


def indivisible(options: RunOptions, batch_size: int) -> Diagnostic:
    """Return the diagnostic for a batch that cannot be divided equally."""
    count = divisor(options)
    each = "one for each context" if len(options.devices) > 1 else "its batch parts"
    return Diagnostic(
        f"a batch cannot be divided into {count} equal parts, {each}",
        options.place("data", "batch_size"),
        expected=f"data.batch_size: a multiple of {count}",
        got=str(batch_size),
    )


def mixing_layers(model: Model) -> list[str]:
    """Return the names of the layers that mix the samples of a batch in training."""
    return [node.name for node in model.symbol.nodes if node.prop and node.prop.mixes_samples]
