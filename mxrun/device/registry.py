"""Kinds of devices by the name by which configs select them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeVar

from mxrun.base.device import DeviceDescription
from mxrun.base.registry import Registry
from mxrun.device.interface import Device

DeviceClass = TypeVar("DeviceClass", bound=type[Device])

DEVICES: Registry[type[Device]] = Registry("device")
# Modules that register the kinds that come with mxrun, imported when a kind is first used.
_BUILT_IN = {"cpu": "mxrun.device.cpu.device", "reference": "mxrun.device.reference.device"}


def register_device(name: str) -> Callable[[DeviceClass], DeviceClass]:
    """Class decorator: register a kind of device under the name that `context` selects.

    Raises InternalError if the name is taken.
    """

    def add(device_class: DeviceClass) -> DeviceClass:
        DEVICES.add(name, device_class)
        return device_class

    return add


def device_kinds() -> list[str]:
    """Return the names of all kinds."""
    return sorted({*_BUILT_IN, *DEVICES})


def device_kind(name: str) -> type[Device]:
    """Return the kind of that name; raises UserError naming the nearest known names."""
    for known, module in _BUILT_IN.items():
        if known == name or name not in _BUILT_IN:
            importlib.import_module(module)
    return DEVICES.get(name)


def open_device(description: DeviceDescription, name: str) -> Device:
    """Open a device of the kind `name` that kernels were prepared for."""
    return device_kind(name)(description)
