"""Q9: an operator whose gradient runs on one device only (MXNet's DEV mask)."""

from __future__ import annotations

from pathlib import Path

from commands import refused, result

PLUGIN = '''\
"""The square, whose gradient has a kernel on the CPU and no NumPy body."""

from mxrun.base.params import Parameters
from mxrun.operator import scalar
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import Operator
from mxrun.operator.property import OperatorProperty, PartialInference, same_shape
from mxrun.operator.register import Implementation, implement, register

SQUARE = scalar.compile(lambda x: x * x)
GRADIENT = scalar.compile(lambda g, x: 2 * g * x)


class NoParameters(Parameters):
    """None."""


@register("my_square")
class SquareProperty(OperatorProperty[NoParameters]):
    """output = data squared."""

    type_string = "my_square"
    parameter_type = NoParameters

    def infer_shape(self, inputs, outputs):
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def create_operator(self):
        return Square()


class Square(Operator):
    """NumPy body of forward alone."""

    def forward(self, call):
        call.store(output=call.inputs.data**2)


@implement("my_square", backend="jit", devices=("cpu",))
class CompiledSquare(Implementation):
    """Both directions."""

    def prepare_forward(self, prop, request):
        return self.kernel(SQUARE, (0,), request, request.inputs, request.outputs)

    def prepare_backward(self, prop, request):
        read = (*request.out_grad, *request.in_data, *request.out_data)
        return self.kernel(GRADIENT, (0, 1), request, read, request.in_grad)

    def kernel(self, function, operands, request, inputs, outputs):
        (output,) = outputs
        part = function.multi_output_part(
            [target(0)],
            [source(index) for index in operands],
            output.elements,
            device=request.device,
            requests=request.requests,
        )
        read = tuple(spec if index in operands else None for index, spec in enumerate(inputs))
        requests = scalar.without_add_requests(request.requests)
        return native_kernel(self.name, [part], read, outputs, requests, request.device)
'''
CONFIG = """\
name: square
plugins: [square.py]
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 16}
    - my_square: {name: square1}
    - FullyConnected: {name: fc2, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 64
  train: {dataset: digits, split: train}
train: {epochs: 1, optimizer: {sgd: {lr: 0.01}}}
"""


def test_Q9_an_operator_without_a_gradient_on_a_device_infers_there(tmp_path: Path) -> None:
    (tmp_path / "square.py").write_text(PLUGIN)
    (tmp_path / "net.yaml").write_text(CONFIG)
    trained = result("train", "net.yaml", cwd=tmp_path)
    assert trained["steps"] > 0
    for phase in ("inspect-memory", "bench"):
        options = ("--phase", "infer", *(("--steps", "3") if phase == "bench" else ()))
        assert result(phase, "net.yaml", "context=reference", *options, cwd=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    text = refused("train", "net.yaml", "context=reference", "name=other", cwd=tmp_path)
    assert "my_square 'square1' has no gradient on the device reference" in text
    assert "net.yaml:7:" in text
    assert not [path for path in sorted(tmp_path.rglob("*.safetensors")) if path not in before]
    # What is frozen before it needs no gradient.
    frozen = 'network.variables={"fc1_*": {frozen: true}}'
    done = result("train", "net.yaml", "context=reference", "name=frozen", frozen, cwd=tmp_path)
    assert done["steps"] == trained["steps"]


def test_Q9_other_kernels_have_the_gradient_that_a_numpy_body_lacks(tmp_path: Path) -> None:
    (tmp_path / "square.py").write_text(PLUGIN)
    (tmp_path / "net.yaml").write_text(CONFIG)
    assert result("train", "net.yaml", "implementation=numpy", cwd=tmp_path)["steps"] > 0
    named = CONFIG.replace("{name: square1}", "{name: square1, implementation: numpy}")
    (tmp_path / "net.yaml").write_text(named)
    text = refused("train", "net.yaml", "name=other", cwd=tmp_path)
    assert "my_square 'square1' has no gradient on the device cpu as 'numpy'" in text
    assert "leave out `implementation`" in text
