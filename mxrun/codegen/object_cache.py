"""Disk cache of compiled native functions, linked into the process without the compiler.

A function is compiled once per machine and stored as an object file in the user's cache folder,
named by a digest of everything that determines its bytes. A later process passes that file to
LLVM's linker.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base import cache_files
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.once import once
from mxrun.codegen.processor import processor

_DIGEST_BYTES = 32
_NATIVE = "native"
_ELF_MAGIC = b"\x7fELF"
# Modules of this folder that generate the code of native functions, besides those in `sequential`.
_TRANSLATION = (
    *("arguments", "block_function", "blocks", "declaration", "function_source", "intrinsics"),
    *("jit", "vectors", "products", "philox"),
    *("gpu_kernel", "kernel_entry", "llvm_bfloat16", "llvm_block", "llvm_target", "map_body"),
    *("map_loop", "map_ptx", "processor", "target"),
    *("scalar_circular", "scalar_double", "scalar_error_function", "scalar_exponential"),
    *("scalar_float32", "scalar_float32_logarithm", "scalar_functions", "scalar_gamma"),
    *("scalar_instructions", "scalar_llvm", "scalar_logarithm", "scalar_lowering"),
    *("scalar_operations", "scalar_parts", "scalar_pieces", "scalar_remainder", "scalar_value"),
)


@dataclass(frozen=True)
class CompiledObject:
    """ELF object and the symbol of its function."""

    symbol: str
    code: bytes


def key_of(function: str) -> str:
    """Return the cache key of a function's object.

    It is a digest of the function's identity, this package's code generator, the versions of
    compiler and interpreter, and the processor.
    """
    chosen = processor()
    parts = (function, _compiler(), chosen.name, chosen.features)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def find(key: str) -> CompiledObject | None:
    """Return the object cached under `key`; None if there is none that links."""
    content = read(_NATIVE, key)
    if content is None:
        return None
    symbol, _, code = content.partition(b"\0")
    try:
        compiled = CompiledObject(symbol.decode(), code)
    except UnicodeDecodeError:
        return None
    return compiled if _address(compiled) else None


def store(key: str, compiled: CompiledObject) -> None:
    """Store an object."""
    write(_NATIVE, key, b"\0".join((compiled.symbol.encode(), compiled.code)))


def read(kind: str, key: str) -> bytes | None:
    """Return what is cached of a kind under `key`, undamaged.

    What was written under another key is refused: run with another function's arguments it would
    overwrite memory.
    """
    content = cache_files.read(kind, key)
    if content is None:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    written_for, _, rest = body.partition(b"\0")
    is_own = hashlib.sha256(body).digest() == digest and written_for == key.encode()
    return rest if is_own else None


def write(kind: str, key: str, content: bytes) -> None:
    """Cache content; a folder that cannot be written only costs another compilation."""
    body = b"\0".join((key.encode(), content))
    cache_files.write(kind, key, hashlib.sha256(body).digest() + body)


def link(compiled: CompiledObject) -> int:
    """Load an object into the process, once, and return the address of its function.

    Raises InternalError if the object has no such function.
    """
    address = _address(compiled)
    if not address:
        raise InternalError(f"the compiled object lacks {compiled.symbol}")
    return address


@once
def _address(compiled: CompiledObject) -> int:
    """Return the address of an object's function; 0 if it cannot be loaded or has none."""
    import llvmlite.binding as llvm

    # LLVM ends the process on an invalid object file or an empty name.
    if not compiled.symbol or not compiled.code.startswith(_ELF_MAGIC):
        return 0
    engine = _engine()
    try:
        engine.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
    except RuntimeError:
        return 0
    engine.finalize_object()
    return int(engine.get_function_address(compiled.symbol))


@once
def _engine() -> Any:
    """Return LLVM's linker for this process; code ends with the linker that has loaded it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault")
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@cache
def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@once
def _compiler() -> str:
    """Return a text of everything but function and processor that determines compiled bytes."""
    folder = Path(__file__).parent
    files = [folder / f"{name}.py" for name in _TRANSLATION]
    files += sorted((folder / "sequential").glob("*.py"))
    translation = "".join(_file_digest(str(file)) for file in files)
    versions = (
        *(metadata.version("llvmlite"), np.__version__),
        platform.python_version(),
    )
    return " ".join((translation, *versions))
