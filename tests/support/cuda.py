"""CUDA C compiled with NVRTC where that is installed; no card is needed."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest


def find_nvrtc() -> ctypes.CDLL | None:
    """NVRTC as NVIDIA's package on PyPI installs it."""
    try:
        found = importlib.util.find_spec("nvidia.cuda_nvrtc")
    except ModuleNotFoundError:
        return None
    folders = found.submodule_search_locations if found else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    return None


NVRTC = find_nvrtc()
needs_nvrtc = pytest.mark.skipif(
    NVRTC is None, reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc-cu12)"
)


def compile_cuda(source: str) -> str:
    """The source as PTX; fails with the compiler's log."""
    assert NVRTC is not None
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert NVRTC.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"map.cu", 0, 0, 0) == 0
    status = NVRTC.nvrtcCompileProgram(program, 0, None)
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode() + source
    NVRTC.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()
