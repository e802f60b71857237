"""Kinds of devices by the name by which configs select them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from mxrun.base.device import CPU, GPU, KIND_NAME, REFERENCE, DeviceDescription
from mxrun.base.errors import InternalError
from mxrun.base.near_names import listed
from mxrun.base.registry import Registry
from mxrun.device.interface import Device

DeviceClass = TypeVar("DeviceClass", bound=type[Device])


def _cpu() -> type[Device]:
    from mxrun.device.cpu.device import CpuDevice

    return CpuDevice


def _reference() -> type[Device]:
    from mxrun.device.reference.device import ReferenceDevice

    return ReferenceDevice


def _gpu() -> type[Device]:
    from mxrun.device.cuda.device import CudaDevice

    return CudaDevice


# Functions that return the class: the kinds that come with mxrun are imported when they are used.
DEVICES: Registry[Callable[[], type[Device]]] = Registry("device")
DEVICES.add(CPU, _cpu)
DEVICES.add(REFERENCE, _reference)
DEVICES.add(GPU, _gpu)


def register_device(name: str) -> Callable[[DeviceClass], DeviceClass]:
    """Class decorator: register a kind of device under the name that `context` selects.

    Raises InternalError if a config cannot contain the name, if it is taken, or if methods are
    missing.
    """
    if not re.fullmatch(KIND_NAME, name, re.ASCII):
        raise InternalError(
            f"device {name!r}: a name has letters, digits, _ and -, and begins with a letter"
        )

    def add(device_class: DeviceClass) -> DeviceClass:
        if not issubclass(device_class, Device):
            raise InternalError(f"{device_class.__name__} is not a Device")
        missing = sorted(device_class.__abstractmethods__)
        if missing:
            raise InternalError(f"{device_class.__name__} lacks {listed(missing)}")
        DEVICES.add(name, lambda: device_class)
        return device_class

    return add


def device_kinds() -> list[str]:
    """Return the names of all kinds."""
    return list(DEVICES)


def device_kind(name: str) -> type[Device]:
    """Return the kind of that name; raises UserError naming the nearest known names."""
    return DEVICES.get(name)()


def open_device(description: DeviceDescription, name: str) -> Device:
    """Open a device of the kind `name` that kernels were prepared for."""
    return device_kind(name)(description)
