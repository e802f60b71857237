"""Finding and loading oneDNN, its errors, and its instructions."""

import os
import platform
import subprocess
import sys

import pytest
from commands import python_output

from mxrun.base.errors import InternalError
from mxrun.codegen.processor import lacks
from mxrun.device.cpu.onednn import library

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
needs_onednn = pytest.mark.skipif(library.load() is None, reason=library.reason())


@pytest.mark.skipif(not SUPPORTED, reason="the distribution exists for x86-64 Linux only")
def test_the_installed_distribution_is_found():
    loaded = library.load()
    assert loaded is not None, library.reason()
    assert loaded.version.startswith("3.")
    assert loaded.instruction_set
    assert library.reason() == ""


@pytest.mark.parametrize("content", [None, b"not a shared object"])
def test_an_unusable_library_leaves_everything_importable(tmp_path, content):
    path = tmp_path / "libdnnl.so.3"
    if content is not None:
        path.write_bytes(content)
    program = (
        "from mxrun.device.cpu.onednn import descriptor, library, operations, primitive\n"
        "assert library.load() is None\n"
        "print(library.reason())\n"
        "library.require()\n"
    )
    environment = {**os.environ, "MXRUN_ONEDNN_LIBRARY": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert str(path) in done.stdout
    assert "InternalError" in done.stderr
    assert str(path) in done.stderr


@needs_onednn
def test_a_failing_call_is_named_with_its_status():
    with pytest.raises(InternalError, match="dnnl_engine_create returned invalid_arguments"):
        library.require().create("dnnl_engine_create", 99, 0)


@needs_onednn
@pytest.mark.parametrize("chosen", [None, "AVX2"])
def test_a_matrix_unit_without_a_description_is_left_alone(chosen):
    program = (
        "import os\n"
        "from mxrun.device.cpu.onednn import instructions, library\n"
        "assert library.load()\n"
        "lacks = instructions.announces_tiles() and not instructions.described_tiles()\n"
        "print(lacks, os.environ.get('ONEDNN_MAX_CPU_ISA'), library.version())\n"
    )
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {} if chosen is None else {names[0]: chosen}
    lacks, limit, version = python_output("-c", program, env=environment).split(maxsplit=2)
    if chosen is None and lacks == "True":
        assert limit == "AVX512_CORE_FP16"
        assert "amx" not in version
    else:
        assert limit == str(chosen)


@needs_onednn
@pytest.mark.skipif(bool(lacks("avx2")), reason="the processor has no AVX2")
@pytest.mark.parametrize(
    ("variable", "given", "limit"),
    [
        ("ONEDNN_MAX_CPU_ISA", "SSE41", "SSE41"),
        ("DNNL_MAX_CPU_ISA", "SSE41", "SSE41"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE", "AVX2"),
        ("ONEDNN_MAX_CPU_ISA", "", "AVX2"),
    ],
)
def test_the_stricter_limit_of_instructions_holds(variable: str, given: str, limit: str) -> None:
    program = "from mxrun.device.cpu.onednn import library; print(library.version())"
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"MXRUN_PROCESSOR": "avx2", variable: given}
    version = python_output("-c", program, env=environment)
    assert version.split()[-1] == limit.lower()
