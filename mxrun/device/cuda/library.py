"""CuPy, imported when a card is first used, and the reasons why cards cannot be used.

Only this file imports it. Its functions raise CuPy's own errors, which `errors` translates.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.once import once

# Values of cudaError_t (driver_types.h).
_DRIVER_TOO_OLD, _NO_DEVICE = 35, 100
# The driver's numbers are 1000 * major + 10 * minor.
_LEAST_DRIVER = 12000
_EXTRAS = {12: "gpu-cuda12", 13: "gpu"}
_ROOT = Path("/")
_INSTALL = "pip install 'mxrun[gpu]' for CUDA 13, or 'mxrun[gpu-cuda12]'"


@dataclass(frozen=True)
class CuPy:
    """Modules and classes of CuPy that the device uses, whose names are its own."""

    runtime: Any
    memory: Any
    pinned_memory: Any
    stream: Any
    function: Any
    device: Any
    errors: tuple[type[Exception], ...]


@once
def load() -> CuPy:
    """Import CuPy; raises UserError if no card can be used, with the reason."""
    reason = problem()
    if reason:
        raise UserError(Diagnostic(f"no GPU can be used: {reason}"))
    return _imported()


def _imported() -> CuPy:
    from cupy.cuda import device, driver, function, memory, pinned_memory, runtime, stream

    errors = (runtime.CUDARuntimeError, driver.CUDADriverError)
    return CuPy(runtime, memory, pinned_memory, stream, function, device, errors)


def installed() -> dict[str, str]:
    """Return the installed packages of CuPy with their versions."""
    found = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    return {name: version for name, version in sorted(found.items()) if _is_cupy(name)}


def _is_cupy(name: str | None) -> bool:
    return name is not None and (name == "cupy" or name.startswith("cupy-cuda"))


@once
def problem() -> str:
    """Return why no card can be used, with what to do; empty if one can."""
    packages = installed()
    if len(packages) > 1:
        found = " and ".join(f"{name} {version}" for name, version in packages.items())
        return f"{found} overwrite each other's files; uninstall both, then {_INSTALL}"
    try:
        cupy = _imported()
    except ImportError as error:
        if packages:
            (name,) = packages
            return f"{name} is installed but cannot be imported: {error}"
        return f"CuPy is not installed: {_INSTALL}"
    try:
        count = cupy.runtime.getDeviceCount()
    except cupy.errors as error:
        return _reason(cupy, getattr(error, "status", 0), str(error))
    return "" if count else _no_card()


def _reason(cupy: CuPy, status: int, text: str) -> str:
    """Return why the number of cards cannot be read: an error of CUDA's runtime."""
    driver, runtime = cupy.runtime.driverGetVersion(), cupy.runtime.runtimeGetVersion()
    if status == _NO_DEVICE:
        return _no_card()
    if status != _DRIVER_TOO_OLD:
        return text
    if driver == 0:
        return _no_driver()
    if driver < _LEAST_DRIVER:
        return (
            f"the driver is for CUDA {_version(driver)}, and at least {_version(_LEAST_DRIVER)} is "
            "needed; install a newer driver of NVIDIA"
        )
    own, extra = runtime // 1000, _EXTRAS.get(driver // 1000)
    if driver // 1000 == own or extra is None:
        return (
            f"CuPy needs a driver for CUDA {_version(runtime)}, this one is for {_version(driver)}"
        )
    return (
        f"CuPy is for CUDA {own}, the driver for CUDA {_version(driver)}; install a newer driver, "
        f"or uninstall CuPy, then pip install 'mxrun[{extra}]'"
    )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _no_driver() -> str:
    if _in_container():
        return (
            "the container has no driver; start it with `--gpus all` and NVIDIA's container toolkit"
        )
    if _in_wsl():
        return "no driver in WSL; install NVIDIA's driver in Windows, and none in Linux"
    return "no driver of NVIDIA is installed"


def _no_card() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides every card"
    if _card_files():
        return (
            "a card is here, but none can be used; in MIG mode it needs an instance, which "
            "`nvidia-smi -L` lists and `nvidia-smi mig` makes"
        )
    if _in_container():
        return "the container has no card; start it with `--gpus all`"
    return "the driver finds no card"


def _card_files() -> bool:
    return any(_ROOT.glob("dev/nvidia[0-9]*"))


def _in_container() -> bool:
    return any((_ROOT / name).exists() for name in (".dockerenv", "run/.containerenv"))


def _in_wsl() -> bool:
    try:
        return "microsoft" in (_ROOT / "proc/version").read_text().lower()
    except OSError:
        return False
