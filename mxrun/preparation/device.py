"""The device of a run: the one that the config's `context` names, and checks that it is there."""

from __future__ import annotations

from mxrun.base.device import CUDA, DeviceDescription
from mxrun.base.errors import Diagnostic
from mxrun.base.foreign_names import hint_for
from mxrun.base.near_names import listed, nearest
from mxrun.config import Parsed, RunOptions
from mxrun.device import registry
from mxrun.device.interface import Device
from mxrun.frontend import ModelDefinition
from mxrun.frontend.contexts import mixing_layers
from mxrun.graph.phases import TRAIN
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.planner.plan import Plan

_OWN_DEVICE = "the key `plugins` names the file of a device of your own"


def kind_of(options: RunOptions) -> type[Device]:
    """Return the kind of device that the config names."""
    return registry.device_kind(options.device[0])


def describe(options: RunOptions, threads: int) -> DeviceDescription:
    """Return the description of the config's first device, on which `threads` may compute."""
    return kind_of(options).describe(options.device[1], threads)


def open_device(options: RunOptions, description: DeviceDescription) -> Device:
    """Open a device of the config's kind; `description` is that of the plan."""
    return registry.open_device(description, options.device[0])


def context_notes(built: ModelDefinition) -> list[str]:
    """Return notes for the user about training on several contexts, or in batch parts."""
    mixing = mixing_layers(built.model)
    if not built.updates_apart or not mixing:
        return []
    key, part = "context", "context"
    if built.batch_parts > 1:
        key, part = "batch_parts", "batch part"
    count = built.contexts * built.batch_parts
    layer, more = mixing[0], len(mixing) - 1
    return [
        f"{key}: {layer!r}{f' and {more} more layers' if more else ''} normalise the "
        f"{built.batch_size // count} samples of each {part} apart; moving statistics are those of "
        f"the first {part}"
    ]


def host_body_notes(plan: Plan) -> list[str]:
    """Return a note about the steps of training on a card that run on the host."""
    if plan.device.family != CUDA:
        return []
    steps = plan.phases[TRAIN].steps
    names = [
        step.name for step in steps if step.kernel and step.kernel.implementation == NUMPY.name
    ]
    if not names:
        return []
    return [
        f"context: {len(names)} of {len(steps)} steps have no kernel for cards and run in NumPy on "
        f"the host, with copies both ways: {listed(names)}"
    ]


def with_device_checked(parsed: Parsed) -> Parsed:
    """Return the config, with a diagnostic added for each of its devices that is not here."""
    known = registry.device_kinds()
    for number, (kind, index) in enumerate(parsed.devices):
        if kind not in known:
            problem = f"there is no kind of device {kind!r}"
            hint = hint_for("device", kind) or nearest(kind, known) or _OWN_DEVICE
            parsed = parsed.with_problem(_missing(parsed, number, problem, hint))
            continue
        found = registry.device_kind(kind)
        count = found.count()
        if index >= count:
            hint = "" if count else found.missing()
            problem = f"there is no device {kind}:{index}"
            parsed = parsed.with_problem(_missing(parsed, number, problem, hint))
        elif reason := found.unusable(index):
            problem = f"{kind}:{index} cannot be used"
            parsed = parsed.with_problem(_missing(parsed, number, problem, reason))
    return parsed


def _missing(parsed: Parsed, number: int, problem: str, hint: str) -> Diagnostic:
    """Return the diagnostic for device `number` of the config."""
    counts = {kind: registry.device_kind(kind).count() for kind in registry.device_kinds()}
    found = parsed.tree.find("context", number)
    return Diagnostic(
        f"context: {problem}",
        found.place,
        expected=", ".join(f"{kind} ({_devices(count)})" for kind, count in counts.items()),
        got=str(found.plain()),
        hint=hint,
    )


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count or 'no'} devices"
