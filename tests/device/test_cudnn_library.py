"""cuDNN's constants and prototypes against the wheel's header, and what a missing library says."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from enum import Enum

import pytest
from cudnn import header, needs_cudnn

from mxrun.base.errors import InternalError
from mxrun.device.cuda.cudnn import constants, library
from mxrun.device.cuda.cudnn.constants import (
    Attribute,
    AttributeType,
    DataType,
    DescriptorKind,
    HeuristicMode,
    NumericalNote,
)
from mxrun.device.cuda.cudnn.descriptor import ELEMENTS

NAMES: dict[type[Enum], str] = {
    DescriptorKind: "CUDNN_BACKEND_{}_DESCRIPTOR",
    AttributeType: "CUDNN_TYPE_{}",
    DataType: "CUDNN_DATA_{}",
    HeuristicMode: "CUDNN_HEUR_MODE_{}",
    NumericalNote: "CUDNN_NUMERICAL_NOTE_{}",
    Attribute: "CUDNN_ATTR_{}",
}
# C types of the header's prototypes.
TYPES = {
    "cudnnHandle_t": ctypes.c_void_p,
    "cudnnHandle_t *": ctypes.POINTER(ctypes.c_void_p),
    "cudaStream_t": ctypes.c_void_p,
    "cudnnBackendDescriptor_t": ctypes.c_void_p,
    "cudnnBackendDescriptor_t *": ctypes.POINTER(ctypes.c_void_p),
    "cudnnBackendDescriptorType_t": ctypes.c_int,
    "cudnnBackendAttributeName_t": ctypes.c_int,
    "cudnnBackendAttributeType_t": ctypes.c_int,
    "int64_t": ctypes.c_int64,
    "int64_t *": ctypes.POINTER(ctypes.c_int64),
    "void *": ctypes.c_void_p,
}


def enumerations() -> dict[str, int]:
    """Return the values of all enumerators that the header gives a number."""
    found = re.findall(r"\b(CUDNN_\w+)\s*=\s*(-?\d+)\b", header())
    assert len(found) > 500
    return {name: int(value) for name, value in found}


@needs_cudnn
@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
def test_numbers_are_those_of_the_header(kind: type[Enum]) -> None:
    values, form = enumerations(), NAMES[kind]
    numbers = {
        form.format(name): each.number if isinstance(each, Attribute) else each.value
        for name, each in kind.__members__.items()
    }
    assert numbers == {name: values[name] for name in numbers}


@needs_cudnn
def test_single_numbers_are_those_of_the_header() -> None:
    values = enumerations()
    assert values["CUDNN_CROSS_CORRELATION"] == constants.CROSS_CORRELATION
    assert values["CUDNN_POINTWISE_ADD"] == constants.POINTWISE_ADD
    assert values["CUDNN_POINTWISE_IDENTITY"] == constants.POINTWISE_IDENTITY
    assert values["CUDNN_STATUS_SUCCESS"] == library.SUCCESS
    unsupported = [value for name, value in values.items() if "STATUS_NOT_SUPPORTED" in name]
    assert len(unsupported) > 10
    assert all(value in range(3000, 4000) for value in unsupported)


@needs_cudnn
@pytest.mark.parametrize("name", library.SIGNATURES)
def test_prototypes_are_those_of_the_header(name: str) -> None:
    found = re.search(rf"CUDNNWINAPI\s+{name}\(([^)]*)\)", header())
    assert found is not None
    parameters = [" ".join(each.replace("const", "").split()) for each in found[1].split(",")]
    types = [re.match(r"(\w+(?: \*)?)", each)[1].strip() for each in parameters]
    assert [TYPES[each] for each in types] == library.SIGNATURES[name]


@needs_cudnn
def test_elements_have_the_sizes_of_cs() -> None:
    """Those of enumerations are C's int."""
    sizes = {kind: ctypes.sizeof(ELEMENTS.get(kind, ctypes.c_int)) for kind in AttributeType}
    wide = {AttributeType.INT64, AttributeType.VOID_PTR, AttributeType.BACKEND_DESCRIPTOR}
    single = {AttributeType.BOOLEAN, AttributeType.CHAR}
    for kind, size in sizes.items():
        assert size == (8 if kind in wide else 1 if kind in single else 4), kind


@needs_cudnn
def test_a_failing_call_says_what_cudnn_says() -> None:
    with pytest.raises(InternalError, match="cudnnBackendFinalize returned CUDNN_STATUS_BAD_PARAM"):
        library.require().call("cudnnBackendFinalize", None)


def test_a_missing_library_is_named() -> None:
    """In a process that has neither the wheel nor a driver."""
    script = (
        "import sys; sys.path = [each for each in sys.path if 'cudnn' not in each]\n"
        "from mxrun.device.cuda.cudnn import library\n"
        "library.DISTRIBUTIONS = ('nvidia-cudnn-cu0',)\n"
        "assert library.load() is None\n"
        "print(library.version(), library.reason())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "none cuDNN is not installed (distribution nvidia-cudnn-cu0)\n"
