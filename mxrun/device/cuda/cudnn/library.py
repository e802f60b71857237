"""cuDNN's shared library (version 9), accessed through ctypes.

The library is part of the distributions `nvidia-cudnn-cu13` and `nvidia-cudnn-cu12`. It loads only
where the driver's library `libcuda.so.1` does. Signatures are those of its header cudnn_graph_v9.h.
Graphs are planned without a card and without a handle; only `cudnnCreate`, `cudnnSetStream`,
`cudnnDestroy` and `cudnnBackendExecute` need a card.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from importlib import metadata
from pathlib import Path

from mxrun.base.errors import InternalError
from mxrun.base.near_names import listed
from mxrun.base.once import once
from mxrun.device.c_functions import declare

DISTRIBUTIONS = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
SHARED_OBJECT = "libcudnn.so.9"
SUCCESS = 0
# The first version that plans for the properties of a card that is not there.
_OLDEST = (9, 8)
_MESSAGE_BYTES = 1024
SIGNATURES: dict[str, list[type]] = {
    "cudnnCreate": [POINTER(c_void_p)],
    "cudnnDestroy": [c_void_p],
    "cudnnSetStream": [c_void_p, c_void_p],
    "cudnnBackendCreateDescriptor": [c_int, POINTER(c_void_p)],
    "cudnnBackendDestroyDescriptor": [c_void_p],
    "cudnnBackendFinalize": [c_void_p],
    "cudnnBackendSetAttribute": [c_void_p, c_int, c_int, c_int64, c_void_p],
    "cudnnBackendGetAttribute": [c_void_p, c_int, c_int, c_int64, POINTER(c_int64), c_void_p],
    "cudnnBackendExecute": [c_void_p, c_void_p, c_void_p],
}


class CudnnError(InternalError):
    """Failure of a call of cuDNN."""


class CudnnLibrary:
    """Loaded cuDNN; version: such as 9.28.1."""

    def __init__(self, shared_object: ctypes.CDLL) -> None:
        self._functions = shared_object
        declare(shared_object, SIGNATURES)
        shared_object.cudnnGetErrorString.argtypes = [c_int]
        shared_object.cudnnGetErrorString.restype = c_char_p
        shared_object.cudnnGetLastErrorString.argtypes = [c_char_p, c_size_t]
        shared_object.cudnnGetLastErrorString.restype = None
        self.version = ".".join(map(str, _version_of(shared_object)))

    def status(self, name: str, *arguments: object) -> int:
        """Call `name` and return its status without checking it."""
        return int(getattr(self._functions, name)(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Call `name`; raises CudnnError with cuDNN's own message if it fails."""
        status = self.status(name, *arguments)
        if status != SUCCESS:
            raise CudnnError(f"{name} returned {self.message(status)}")

    def message(self, status: int) -> str:
        """Return the name of a status, and what cuDNN says about this thread's last failure."""
        text = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._functions.cudnnGetLastErrorString(text, _MESSAGE_BYTES)
        name = self._functions.cudnnGetErrorString(status).decode()
        return f"{name}: {text.value.decode(errors='replace')}".rstrip(": ")


def load() -> CudnnLibrary | None:
    """Load the library once per process; return None if it is unavailable (see `reason`)."""
    return _attempt()[0]


def reason() -> str:
    """Return why `load()` returns None; empty if it does not."""
    return _attempt()[1]


def version() -> str:
    """Return library and version, which plans and hence results' bits depend on; or `none`."""
    library = load()
    return "none" if library is None else f"cuDNN {library.version}"


def require() -> CudnnLibrary:
    """Return the library; raises InternalError with the reason if it is unavailable."""
    library, why = _attempt()
    if library is None:
        raise InternalError(why)
    return library


@once
def _attempt() -> tuple[CudnnLibrary | None, str]:
    path = _find()
    if path is None:
        return None, f"cuDNN is not installed (distribution {listed(DISTRIBUTIONS)})"
    try:
        shared_object = ctypes.CDLL(str(path))
        found = _version_of(shared_object)
        if not _OLDEST <= found < (_OLDEST[0] + 1,):
            oldest, text = (".".join(map(str, each)) for each in (_OLDEST, found))
            return None, f"cuDNN {text} is not supported: 9.x from {oldest} on is"
        return CudnnLibrary(shared_object), ""
    except (OSError, AttributeError) as error:
        return None, f"cuDNN cannot be loaded: {error}"


def _find() -> Path | None:
    for distribution in DISTRIBUTIONS:
        try:
            files = metadata.files(distribution) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == SHARED_OBJECT:
                return Path(str(file.locate()))
    return None


def _version_of(shared_object: ctypes.CDLL) -> tuple[int, int, int]:
    """Return major, minor and patch level of MAJOR * 10000 + MINOR * 100 + PATCH."""
    shared_object.cudnnGetVersion.restype = c_size_t
    number = int(shared_object.cudnnGetVersion())
    return number // 10_000, number // 100 % 100, number % 100
