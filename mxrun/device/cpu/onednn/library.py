"""oneDNN's shared library (C API, version 3), accessed through ctypes.

The library is part of the distribution `onednn-cpu-gomp`. The environment variable
`MXRUN_ONEDNN_LIBRARY` may name another 3.x build, with OpenMP or without threads. Enumeration
values and signatures are those of oneDNN 3.2's public headers (dnnl.h, dnnl_types.h,
dnnl_common_types.h).

Primitives are made for one thread and run on one. Where the build has OpenMP, the thread that makes
one, and every thread that runs one, must therefore have called `omp_set_num_threads(1)` before.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from importlib import metadata
from pathlib import Path

from mxrun.base import flags
from mxrun.base.errors import InternalError
from mxrun.base.once import once
from mxrun.device.c_functions import declare
from mxrun.device.cpu.onednn.instructions import limit_instructions

DISTRIBUTION = "onednn-cpu-gomp"
SHARED_OBJECT = "libdnnl.so.3"

_OPENMP_RUNTIME = 2
_RUNTIMES = (1, _OPENMP_RUNTIME)
_CPU_ENGINE = 1
_DEFAULT_STREAM = 1
SUCCESS = 0
UNIMPLEMENTED = 3
LAST_IMPLEMENTATION = 4

_HANDLE = c_void_p
_RESULT = POINTER(c_void_p)
_DIMENSIONS = POINTER(c_int64)
_GEOMETRY = [_DIMENSIONS] * 4
_SIGNATURES: dict[str, list[type]] = {
    "dnnl_engine_create": [_RESULT, c_int, c_size_t],
    "dnnl_stream_create": [_RESULT, _HANDLE, c_int],
    "dnnl_memory_desc_create_with_strides": [_RESULT, c_int, _DIMENSIONS, c_int, _DIMENSIONS],
    "dnnl_memory_desc_create_with_tag": [_RESULT, c_int, _DIMENSIONS, c_int, c_int],
    "dnnl_memory_desc_clone": [_RESULT, _HANDLE],
    "dnnl_memory_desc_destroy": [_HANDLE],
    "dnnl_memory_desc_query": [_HANDLE, c_int, c_void_p],
    "dnnl_memory_create": [_RESULT, _HANDLE, _HANDLE, c_void_p],
    "dnnl_memory_destroy": [_HANDLE],
    "dnnl_memory_set_data_handle": [_HANDLE, c_void_p],
    "dnnl_primitive_attr_create": [_RESULT],
    "dnnl_primitive_attr_destroy": [_HANDLE],
    "dnnl_primitive_attr_set_scratchpad_mode": [_HANDLE, c_int],
    "dnnl_primitive_attr_set_post_ops": [_HANDLE, _HANDLE],
    "dnnl_post_ops_create": [_RESULT],
    "dnnl_post_ops_destroy": [_HANDLE],
    "dnnl_post_ops_append_eltwise": [_HANDLE, c_int, c_float, c_float],
    "dnnl_post_ops_append_sum": [_HANDLE, c_float, ctypes.c_int32, c_int],
    "dnnl_primitive_desc_next_impl": [_HANDLE],
    "dnnl_primitive_desc_query": [_HANDLE, c_int, c_int, c_void_p],
    "dnnl_primitive_desc_destroy": [_HANDLE],
    "dnnl_primitive_create": [_RESULT, _HANDLE],
    "dnnl_primitive_destroy": [_HANDLE],
    "dnnl_primitive_execute": [_HANDLE, _HANDLE, c_int, c_void_p],
    "dnnl_set_primitive_cache_capacity": [c_int],
    "dnnl_convolution_forward_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int, c_int),
        *([_HANDLE] * 4 + _GEOMETRY + [_HANDLE]),
    ],
    "dnnl_convolution_backward_data_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int),
        *([_HANDLE] * 3 + _GEOMETRY + [_HANDLE] * 2),
    ],
    "dnnl_convolution_backward_weights_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int),
        *([_HANDLE] * 4 + _GEOMETRY + [_HANDLE] * 2),
    ],
    "dnnl_pooling_forward_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int, c_int),
        *([_HANDLE] * 2 + _GEOMETRY + [_DIMENSIONS, _HANDLE]),
    ],
    "dnnl_pooling_backward_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int),
        *([_HANDLE] * 2 + _GEOMETRY + [_DIMENSIONS, _HANDLE, _HANDLE]),
    ],
    "dnnl_matmul_primitive_desc_create": [_RESULT, *([_HANDLE] * 6)],
    "dnnl_lrn_forward_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int, c_int),
        *(_HANDLE, _HANDLE, c_int64, c_float, c_float, c_float, _HANDLE),
    ],
    "dnnl_lrn_backward_primitive_desc_create": [
        *(_RESULT, _HANDLE, c_int),
        *(_HANDLE, _HANDLE, _HANDLE, c_int64, c_float, c_float, c_float, _HANDLE, _HANDLE),
    ],
    "dnnl_reorder_primitive_desc_create": [_RESULT, *([_HANDLE] * 5)],
}


class _Version(ctypes.Structure):
    """dnnl_version_t."""

    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


class Library:
    """Loaded oneDNN with its CPU engine and a single in-order stream.

    set_threads: address of `omp_set_num_threads`; 0 without OpenMP.
    """

    def __init__(self, shared_object: ctypes.CDLL) -> None:
        self._functions = shared_object
        declare(shared_object, _SIGNATURES)
        shared_object.dnnl_memory_desc_get_size.argtypes = [_HANDLE]
        shared_object.dnnl_memory_desc_get_size.restype = c_size_t
        shared_object.dnnl_memory_desc_equal.argtypes = [_HANDLE, _HANDLE]
        shared_object.dnnl_status2str.restype = c_char_p
        found = _version_of(shared_object)
        self.version = f"{found.major}.{found.minor}.{found.patch}"
        shared_object.dnnl_cpu_isa2str.restype = c_char_p
        isa = shared_object.dnnl_cpu_isa2str(shared_object.dnnl_get_effective_cpu_isa())
        self.instruction_set = isa.decode().removeprefix("cpu_isa_")
        # Its cache takes matrices of one row for equal whether they are transposed or not, and then
        # gives a primitive that needs more scratch memory than its descriptor says.
        self.call("dnnl_set_primitive_cache_capacity", 0)
        self.engine = self.create("dnnl_engine_create", _CPU_ENGINE, 0)
        self.stream = self.create("dnnl_stream_create", self.engine, _DEFAULT_STREAM)
        self.execute = self._address("dnnl_primitive_execute")
        self.place = self._address("dnnl_memory_set_data_handle")
        has_openmp = found.cpu_runtime == _OPENMP_RUNTIME
        self.set_threads = self._address("omp_set_num_threads") if has_openmp else 0

    def status(self, name: str, *arguments: object) -> int:
        """Call `name` and return its status without checking it."""
        return int(getattr(self._functions, name)(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Call `name`; raises InternalError with the name and the status if it fails."""
        self.check(name, self.status(name, *arguments))

    def check(self, name: str, status: int) -> None:
        """Raise InternalError naming the call unless `status` is success."""
        if status != SUCCESS:
            text = self._functions.dnnl_status2str(status).decode()
            raise InternalError(f"{name} returned {text}")

    def create(self, name: str, *arguments: object) -> int:
        """Call a function whose first argument receives a new handle; return the handle."""
        result = c_void_p()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value or 0

    def use_one_thread(self) -> None:
        """Let the calling thread make primitives for one thread from now on."""
        if self.set_threads:
            self._functions.omp_set_num_threads(c_int(1))

    def memory_size(self, descriptor: int) -> int:
        """Return the size of a memory descriptor in bytes, padding included."""
        return int(self._functions.dnnl_memory_desc_get_size(descriptor))

    def same_memory(self, first: int, second: int) -> bool:
        """Return whether two memory descriptors are equal."""
        return bool(self._functions.dnnl_memory_desc_equal(first, second))

    def _address(self, name: str) -> int:
        return ctypes.cast(getattr(self._functions, name), c_void_p).value or 0


class OwnedObject:
    """Owner of a oneDNN object; calls `destroyer` when it is garbage-collected."""

    def __init__(self, library: Library, destroyer: str, value: int) -> None:
        self.value = value
        # Not at interpreter exit: the operating system is faster, and other threads may still run.
        weakref.finalize(self, library.status, destroyer, value).atexit = False


def load() -> Library | None:
    """Load the library once per process; return None if it is unavailable (see `reason`)."""
    return _attempt()[0]


def reason() -> str:
    """Return why `load()` returns None; empty if it does not."""
    return _attempt()[1]


def version() -> str:
    """Return library, version and instruction set, which determine results' bits; or `none`."""
    library = load()
    if library is None:
        return "none"
    return f"oneDNN {library.version} {library.instruction_set}"


def require() -> Library:
    """Return the library; raises InternalError with the reason if it is unavailable."""
    library, why = _attempt()
    if library is None:
        raise InternalError(why)
    return library


@once
def _attempt() -> tuple[Library | None, str]:
    path = _find()
    if path is None:
        return None, f"oneDNN is not installed (distribution {DISTRIBUTION})"
    limit_instructions()
    try:
        shared_object = ctypes.CDLL(str(path))
        version = _version_of(shared_object)
        if version.major != 3 or version.cpu_runtime not in _RUNTIMES:
            return None, f"{path} is not a oneDNN 3.x with OpenMP or without threads"
        return Library(shared_object), ""
    except (OSError, AttributeError) as error:
        # The text of the error begins with the path.
        return None, f"oneDNN cannot be loaded: {error}"


def _find() -> Path | None:
    chosen = flags.onednn_library()
    if chosen:
        return Path(chosen)
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == SHARED_OBJECT), None)


def _version_of(shared_object: ctypes.CDLL) -> _Version:
    shared_object.dnnl_version.restype = POINTER(_Version)
    version: _Version = shared_object.dnnl_version().contents
    return version
