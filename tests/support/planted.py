"""A correct operator file in the form a user writes, and faults planted in it."""

from __future__ import annotations

from pathlib import Path

SOUND = '''
"""One operator with two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.device.host_memory import array_at
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import PartialInference, OperatorProperty, PartialShapes, same_shape
from mxrun.operator.register import Implementation, implement, register

T = TypeVar("T")


class PlantedParameters(Parameters):
    """Parameters of planted."""

    scale: Float32 = Field(default=2.0, description="Multiplies the product.", examples=[0.5])


@register("planted")
class PlantedProperty(OperatorProperty[PlantedParameters]):
    """output = scale * lhs * sin(rhs). Backward reads the output's gradient and both inputs."""

    type_string = "planted"
    parameter_type = PlantedParameters

    def list_arguments(self) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        lhs, rhs, output = same_shape(("lhs", "rhs", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([lhs, rhs], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        return [out_grad[0], in_data[0], in_data[1]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        return [(out_grad[0], in_grad[1])]

    # more of the property

    def create_operator(self) -> Operator:
        return Planted(self.parameters.scale)


class Planted(Operator):
    """Three NumPy expressions."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def forward(self, call: ForwardCall) -> None:
        lhs, rhs = call.inputs
        output = self.scale * lhs * np.sin(rhs)
        call.store(output=output)

    def backward(self, call: BackwardCall) -> None:
        grad = call.output_gradients.output
        lhs, rhs = call.inputs.lhs, call.inputs.rhs
        lhs_grad = grad * self.scale * np.sin(rhs)
        rhs_grad = grad * self.scale * lhs * np.cos(rhs)
        call.store(lhs=lhs_grad)
        call.store(rhs=rhs_grad)
'''

STORE = "        call.store(output=output)\n"
MORE = "    # more of the property\n"
# A text of the sound file, and what replaces it.
Change = tuple[str, str]
# The check that must fail, words of its sentence, and changes of the sound file.
Fault = tuple[str, tuple[str, ...], tuple[Change, ...]]


def plant(folder: Path, name: str, *changes: Change) -> Path:
    """Write a file with the operator `name`: the correct one with the given texts replaced."""
    text = SOUND
    for old, new in changes:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    path = folder / f"{name}.py"
    path.write_text(text.replace('"planted"', f'"{name}"').lstrip())
    return path


def body(*lines: str) -> Change:
    """Replace the statement of the forward body that stores its result."""
    return STORE, "".join(f"        {line}\n" for line in lines)


def implementation(*lines: str, device: str = "cpu") -> Change:
    """Return a second implementation, whose kernels are `change(kernel, request)` of the body's.

    device: kind of device that its kernels run on.
    """
    text = "".join(f"    {line}\n" for line in lines)
    return "class Planted(Operator):", (
        "from dataclasses import replace\n"
        "from functools import partial\n\n"
        "from mxrun.operator.numpy_kernel import NUMPY\n\n\n"
        f'@implement("planted", backend="other", devices=("{device}",))\n'
        "class Other(Implementation):\n"
        "    def prepare_forward(self, prop: Any, request: Any) -> Any:\n"
        "        return change(NUMPY.prepare_forward(prop, request), request)\n\n"
        "    def prepare_backward(self, prop: Any, request: Any) -> Any:\n"
        "        return NUMPY.prepare_backward(prop, request)\n\n\n"
        f"def change(kernel: Any, request: Any) -> Any:\n{text}\n\n"
        "class Planted(Operator):"
    )


def native(*body: str) -> Change:
    """Return a second implementation that also runs a native function with the given body.

    `call.text` is the address of 64 KiB of text, `call.duplicate` that of the C function `strdup`.
    """
    old, new = implementation(
        "arguments = Added(text=ctypes.addressof(TEXT), duplicate=DUPLICATE)",
        "added = LoopLaunch(added_loop, arguments, 1)",
        "return replace(kernel, bind=lambda handles: (*kernel.bind(handles), added))",
    )
    lines = "".join(f"    {line}\n" for line in body)
    return old, (
        "import ctypes\n\n"
        "from mxrun.codegen.arguments import Arguments, Integer\n"
        "from mxrun.codegen.intrinsics import call_address\n"
        "from mxrun.codegen.jit import native\n"
        "from mxrun.operator.launch import LoopLaunch\n\n"
        "TEXT = ctypes.create_string_buffer(b'x' * 65536)\n"
        "DUPLICATE = ctypes.cast(ctypes.CDLL(None).strdup, ctypes.c_void_p).value\n\n\n"
        "class Added(Arguments):\n"
        "    text: Integer\n"
        "    duplicate: Integer\n\n\n"
        f"@native\ndef added_loop(call: Added) -> None:\n{lines}\n\n{new}"
    )
