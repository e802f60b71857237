"""From a model definition and its plan to bound executors with values, for all commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from mxrun.base.context import Context
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.codegen.compilation import noted_compilations
from mxrun.config import RunOptions
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import gradient_buckets, pieces_between
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.planner.plan import Plan
from mxrun.preparation.device import kind_of, open_device
from mxrun.preparation.notes import Notify
from mxrun.preparation.parameter_init import initialise_pinned, zero_pinned
from mxrun.preparation.planning import least_bytes
from mxrun.runtime.memory_limits import remaining_bytes
from mxrun.train.data_parallel import ContextGroup
from mxrun.train.host_arrays import LEARNED, copy_pinned

# Writes the parameters and states of one executor.
Fill = Callable[[Executor], None]


@contextmanager
def preparing(options: RunOptions, notify: Notify) -> Iterator[None]:
    """Context in which a command plans and binds a network.

    notify: receives what is missing here for full speed on the config's device, and a note once
    compilations take longer than a moment.
    """
    missing = kind_of(options).missing()
    if missing:
        notify(missing)
    with noted_compilations(notify):
        yield


@dataclass(frozen=True, eq=False)
class Prepared:
    """Network that is bound to the contexts of a run; `begin` gives its tensors their values.

    built, plan: on several contexts, of the part of each.
    """

    built: ModelDefinition
    plan: Plan
    group: ContextGroup

    @classmethod
    def of(cls, built: ModelDefinition, plan: Plan) -> Prepared:
        """Allocate the arenas of a plan and bind its programs.

        Raises UserError, before anything is allocated, if the arenas exceed the available memory.
        """
        _check_fits(built, plan)
        return cls(built, plan, _context_group(built, plan))

    @property
    def executor(self) -> Executor:
        """Executor of the first context, whose values the others take over."""
        return self.group.executors[0]

    def begin(self, fill: Fill | None = None) -> None:
        """Set all pinned tensors to what they are at the start of a loop.

        fill: writes parameters and states, which are zero before; by default their initial values.
        """
        first, *others = self.group.executors
        for executor in self.group.executors:
            zero_pinned(executor, self.built)
        if fill is None:
            initialise_pinned(first, self.built)
        else:
            fill(first)
        copy_pinned(first, others, *LEARNED)
        for executor in self.group.executors:
            executor.prepare()


def _context_group(built: ModelDefinition, plan: Plan) -> ContextGroup:
    """Return the executors of a plan on the contexts of a run, with cuts at buckets of gradients.

    In a run on one context, updates consume the gradients within the plan.
    """
    contexts = [Context(*device) for device in built.options.devices[: built.contexts]]
    buckets = gradient_buckets(plan, TRAIN) if built.updates_apart else ()
    pieces = {TRAIN: pieces_between(buckets, plan.phases[TRAIN])} if buckets else {}
    executors = []
    for context in contexts:
        device = open_device(built.options, replace(plan.device, index=context.index))
        executors.append(Executor(replace(plan, device=device.description), device, pieces))
    kvstore, parts = built.options.kvstore, built.own_parts
    return ContextGroup(executors, contexts, buckets, kvstore, parts, built.sliced_states)


def _check_fits(built: ModelDefinition, plan: Plan) -> None:
    """Raise UserError if the arenas of the contexts exceed the available memory.

    Memory that is already used counts as occupied: by other programs on a card, by this process on
    the host, where all contexts share it.
    """
    kind, devices = kind_of(built.options), built.options.devices[: built.contexts]
    own = [kind.memory_bytes(index) for _, index in devices]
    for (name, index), found in zip(devices, own, strict=True):
        if found is not None and plan.planned_bytes > found[0]:
            raise _too_large(built, plan, f"{name}:{index}", *found)
    limit, nbytes = remaining_bytes(), plan.planned_bytes * own.count(None)
    if nbytes > limit:
        raise UserError(
            Diagnostic(
                "the run does not fit into the memory that this process may use",
                expected=f"at most {limit:,} bytes, which are left of its limit",
                got=f"{nbytes:,} bytes planned",
                hint="lower data.batch_size; `mxrun inspect-memory` shows each tensor's memory",
            )
        )


def _too_large(built: ModelDefinition, plan: Plan, device: str, free: int, total: int) -> UserError:
    """Return the error for a plan that exceeds the free memory of a device of its own."""
    least = least_bytes(built, TRAIN in plan.phases)
    fits = (
        "lower data.batch_size" if least > free else f"add memory.budget={free}, or lower the batch"
    )
    return UserError(
        Diagnostic(
            f"the run does not fit into the memory of {device}",
            expected=f"at most {free:,} bytes, which are free of {total:,}",
            got=f"{plan.planned_bytes:,} bytes planned; {least:,} is the least for this batch",
            hint=f"{fits}; `mxrun inspect-memory` shows each tensor's memory",
        )
    )
