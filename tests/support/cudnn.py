"""cuDNN itself in the process of the tests, without a card: the driver's library is a stand-in.

cuDNN is a wheel of some 500 MB beside two of the same size. The variable MXRUN_CUDNN names a folder
that has it, from `pip install --target FOLDER nvidia-cudnn-cu13`; it may also be installed beside
mxrun. Importing this module loads it, before any test plans for a card.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import stand_in

from mxrun.base.device import CUDA, DeviceDescription, NumpyBodies
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.config.bundled import find_config
from mxrun.device.cuda.card import ALIGNMENT
from mxrun.device.cuda.cudnn import library
from mxrun.device.cuda.cudnn.launch import PlanLaunch, variant_pack
from mxrun.device.cuda.cudnn.plan import loaded
from mxrun.device.cuda.recorded_cards import recorded_card
from mxrun.operator.kernel import Handles, Kernel
from mxrun.operator.launch import Handle, Memory
from mxrun.preparation.planning import load, request_for

STUB = Path(__file__).with_name("libcuda_stub.c")
# Operators whose products cuDNN computes.
_PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "_convolution_fused")
_FOLDER = os.environ.get("MXRUN_CUDNN")


def _compiled(folder: str) -> Path:
    """Compile the stand-in; the name that it carries is the one that cuDNN looks for."""
    result = Path(folder) / "libcuda.so.1"
    named = "-Wl,-soname,libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", named, "-o", result, STUB], check=True)
    return result


def _why_missing() -> str:
    """Load cuDNN; return why that is impossible."""
    if _FOLDER is not None and _FOLDER not in sys.path:
        sys.path.append(_FOLDER)
    if shutil.which("cc") is None:
        return "no C compiler `cc` for the stand-in of the driver's library"
    with tempfile.TemporaryDirectory() as folder:
        ctypes.CDLL(str(_compiled(folder)), ctypes.RTLD_GLOBAL)
        return library.reason()


MISSING = _why_missing()
needs_cudnn = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{MISSING}; MXRUN_CUDNN may name a folder of `pip install --target` with it",
)


def environment(**settings: Any) -> dict[str, str]:
    """Return the variables of a command that finds cuDNN, with the stand-ins for card and CuPy."""
    found = stand_in.environment(**settings)
    path = os.pathsep.join(filter(None, (found["PYTHONPATH"], _FOLDER)))
    return {**found, "PYTHONPATH": path, "LD_LIBRARY_PATH": _driver_folder()}


@cache
def _driver_folder() -> str:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    _compiled(folder)
    return folder


def header() -> str:
    """Return the text of the wheel's header, without comments."""
    path = library._find()
    assert path is not None
    text = (path.parents[1] / "include" / "cudnn_graph_v9.h").read_text()
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def card_description(name: str) -> DeviceDescription:
    """Return the description of a recorded card, for whose kernels plans are made."""
    return DeviceDescription(
        CUDA,
        numpy_bodies=NumpyBodies.FLOAT32,
        library=library.version(),
        card=recorded_card(name).properties,
        alignment=ALIGNMENT,
    )


def plan_launches(kernel: Kernel) -> list[PlanLaunch]:
    """Bind a kernel to tensors far apart and return its launches of plans.

    Finalises the descriptor of each plan, made from its text, and that of the addresses.
    """
    memory, offsets = Memory(), count(0, 1 << 40)

    def handle(spec: TensorSpec | None) -> Handle | None:
        return None if spec is None else Handle(memory, next(offsets))

    groups = (kernel.inputs, kernel.outputs, kernel.extra_outputs)
    inputs, outputs, extra = (tuple(map(handle, group)) for group in groups)
    workspace = Handle(memory, next(offsets)) if kernel.workspace_bytes else None
    launches = kernel.bind(Handles(inputs, outputs, extra, workspace))
    found = [launch for launch in launches if isinstance(launch, PlanLaunch)]
    for launch in found:
        assert loaded(launch.plan, 0).handle
        assert (launch.scratch is not None) == (launch.plan.workspace_bytes > 0)
        assert launch.plan.workspace_bytes <= kernel.workspace_bytes
        tensors = {
            role: each for role, each in launch.plan.graph.tensors.items() if not each.is_virtual
        }
        assert launch.places.keys() == tensors.keys()
        addresses = {role: place.offset for role, place in launch.places.items()}
        assert all(addresses[role] % each.alignment == 0 for role, each in tensors.items())
        scratch = 0 if launch.scratch is None else launch.scratch.offset
        assert variant_pack(addresses, scratch).handle
    return found


@dataclass(frozen=True)
class PlannedProducts:
    """Launches of plans of a training run, and its products that another implementation has."""

    launches: list[PlanLaunch]
    elsewhere: list[str]


def planned_products(config: str, precision: str, card: str) -> PlannedProducts:
    """Plan the training of a bundled config, with the config's batch, for a recorded card."""
    built = load(find_config(config), [f"precision={precision}"])
    request = replace(request_for(built, training=True), device=card_description(card))
    plan = compile_plan(built.model.symbol, request)
    found = PlannedProducts([], [])
    for phase in plan.phases.values():
        for step in phase.steps:
            assert step.kernel is not None
            found.launches.extend(plan_launches(step.kernel))
            is_product = step.prop is not None and step.prop.type_string in _PRODUCTS
            if is_product and not step.kernel.implementation.startswith("cudnn:"):
                found.elsewhere.append(f"{step.name}: {step.kernel.implementation}")
    return found
