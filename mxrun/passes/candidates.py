"""Implementations of a step's operator on a device, in the order in which they are tried."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.keywords import AUTO, PREFERRED
from mxrun.base.near_names import listed
from mxrun.graph.graph import Step
from mxrun.operator.numpy_kernel import NUMPY, has_gradient
from mxrun.operator.register import Implementation, implementations


def known_implementations(operator: str, device: DeviceDescription) -> dict[str, Implementation]:
    """Return the implementations of an operator for the device by name, the preferred first."""
    body = {NUMPY.name: NUMPY} if NUMPY.runs_on(device) else {}
    return {**implementations(operator, device), **body}


def candidates(
    step: Step, device: DeviceDescription, requested: str, differentiated: bool
) -> list[Implementation]:
    """Return the implementations to try for a forward step.

    requested: the implementation that the step names, or the one for all steps that name none,
    which others follow. differentiated: whether the step has a backward step; a NumPy body without
    a gradient is then tried only if there is nothing else. Raises UserError if the step names an
    implementation that does not exist.
    """
    assert step.prop is not None
    operator = step.prop.type_string
    known = known_implementations(operator, device)
    if step.options.implementation is None or requested in (PREFERRED, AUTO):
        offered = (each for each in known.values() if requested == each.name or not each.is_by_name)
        found = sorted(offered, key=lambda each: each.name != requested)
        others = [each for each in found if each is not NUMPY]
        return others if others and differentiated and not has_gradient(step.prop) else found
    if requested in known:
        return [known[requested]]
    raise UserError(
        Diagnostic(
            f"{operator} has no implementation {requested!r}",
            place=step.place,
            expected=f"one of {PREFERRED}, {AUTO}, {', '.join(known)}",
        )
    )


def no_kernel(step: Step, device: DeviceDescription) -> Diagnostic:
    """Return the diagnostic for a step that no implementation accepts."""
    assert step.prop is not None
    node, where = f"{step.prop.type_string} {step.name!r}", repr(device.family)
    named = step.options.implementation
    if named is not None:
        return Diagnostic(
            f"{node} cannot run as {named!r} with these shapes and parameters",
            place=step.place,
            hint="leave out `implementation` to let the best one be chosen",
        )
    return Diagnostic(
        f"{node} has no kernel for {where} with these shapes and parameters",
        place=step.place,
        got=f"for {where}: {listed(list(known_implementations(step.prop.type_string, device)))}",
        hint=f"register one with `@implement(..., devices=({where},))`, or let the device's "
        "description have `numpy_bodies`",
    )


def no_gradient(step: Step, forward: str, device: DeviceDescription) -> Diagnostic:
    """Return the diagnostic for a backward step whose forward runs as a body without a gradient."""
    assert step.prop is not None
    known = known_implementations(step.prop.type_string, device)
    return Diagnostic(
        f"{step.prop.type_string} {forward!r} has no gradient on the device {device.family}"
        + (f" as {NUMPY.name!r}" if len(known) > 1 else ""),
        place=step.place,
        expected="a gradient, because a trained parameter's gradient depends on it",
        hint="leave out `implementation` to let another one be chosen"
        if len(known) > 1
        else "train on another device, or freeze what depends on it; inference works",
    )
