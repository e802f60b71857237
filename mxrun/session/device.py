"""The device of a run: the one that the config's `context` names, and checks that it is there."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import Diagnostic
from mxrun.base.near_names import nearest
from mxrun.codegen.interpreted import interpreted
from mxrun.config import Parsed, RunConfig
from mxrun.device import registry
from mxrun.device.interface import Device


def kind_of(config: RunConfig) -> type[Device]:
    """Return the kind of device that the config names."""
    return registry.device_kind(config.device[0])


def describe(config: RunConfig, threads: int) -> DeviceDescription:
    """Return the description of the config's device with a team of `threads`."""
    return kind_of(config).describe(config.device[1], threads)


def open_device(config: RunConfig, description: DeviceDescription) -> Device:
    """Open the config's device; `description` is that of the plan."""
    return registry.open_device(description, config.device[0])


def host_loops(config: RunConfig | None) -> AbstractContextManager[None]:
    """Return the context in which loops on the host are made as the config's device requires.

    They are machine code unless the device must work where none can be loaded. config: None for one
    with problems, whose device does not matter.
    """
    if config is None or kind_of(config).compiles_host_loops:
        return nullcontext()
    return interpreted()


def with_device_checked(parsed: Parsed) -> Parsed:
    """Return the config, with a diagnostic added if there is no such device here."""
    if parsed.device is None:
        return parsed
    kind, index = parsed.device
    known = registry.device_kinds()
    if kind not in known:
        problem = f"there is no kind of device {kind!r}"
        hint = nearest(kind, known) or "the key `plugins` names the file of a device of your own"
        return parsed.with_problem(_missing(parsed, problem, hint))
    count = registry.device_kind(kind).count()
    if index < count:
        return parsed
    hint = "" if count else registry.device_kind(kind).missing()
    return parsed.with_problem(_missing(parsed, f"there is no device {kind}:{index}", hint))


def _missing(parsed: Parsed, problem: str, hint: str) -> Diagnostic:
    counts = {kind: registry.device_kind(kind).count() for kind in registry.device_kinds()}
    return Diagnostic(
        f"context: {problem}",
        parsed.place("context"),
        expected=", ".join(f"{kind} ({_devices(count)})" for kind, count in counts.items()),
        got=str(parsed.tree.find("context").plain()),
        hint=hint,
    )


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count or 'no'} devices"
