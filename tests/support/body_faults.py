"""Faults of what an operator computes: its body, its other implementations, its gradients."""

from __future__ import annotations

from planted import MORE, STORE, Fault, body, implementation, native

FAULTS: dict[str, Fault] = {
    "ignores_add": (
        "forward requests",
        ("ignores the add request of output", "call.store(NAME=value)"),
        (body("if call.is_requested('output'):", "    call.outputs.output[...] = output"),),
    ),
    "adds_other_bits": (
        "forward requests",
        ("adds something else to output than it writes", "leave the output out of `adding`"),
        (
            body(
                "if call.requests.output is OpReqType.ADD:",
                "    output = output * 1.000001",
                "call.store(output=output)",
            ),
            implementation("return replace(kernel, adding={0: lambda: kernel})"),
        ),
    ),
    "writes_null": (
        "forward requests",
        ("numpy forward raises ValueError", "read-only", "writes_null.py:"),
        (
            body(
                "target = call.outputs.output",
                "add = target if call.requests.output is OpReqType.ADD else 0",
                "target[...] = output + add",
            ),
        ),
    ),
    "implementation_writes_null": (
        "forward requests",
        ("other forward writes output, whose request is null", "call.store(NAME=value)"),
        (
            implementation(
                "from mxrun.operator.launch import PythonLaunch",
                "if request.requests[0] is not OpReqType.NULL:",
                "    return kernel",
                "(spec,) = request.outputs",
                "def fill(handles: Any, views: Any) -> Any:",
                "    output = views(handles.outputs[0], spec)",
                "    return lambda: output.fill(1)",
                "return replace(kernel, bind=lambda to: (PythonLaunch(partial(fill, to)),))",
            ),
        ),
    ),
    "ignores_add_backward": (
        "backward requests",
        ("numpy backward ignores the add request of gradient of rhs",),
        (
            (
                "        call.store(rhs=rhs_grad)\n",
                "        if call.is_requested('rhs'):\n"
                "            call.input_gradients.rhs[...] = rhs_grad\n",
            ),
        ),
    ),
    "requests_depend": (
        "backward requests",
        ("writes another gradient of rhs", "(null, write)"),
        (
            (
                "        call.store(rhs=rhs_grad)\n",
                "        factor = 1 if call.is_requested('lhs') else 2\n"
                "        call.store(rhs=rhs_grad * factor)\n",
            ),
        ),
    ),
    "reads_undeclared": (
        "calls",
        (
            "numpy backward raises TypeError: backward reads the input 'rhs'",
            "a tensor that declare_backward_dependency does not name",
            "reads_undeclared.py:",
            "(backward)",
        ),
        (("return [out_grad[0], in_data[0], in_data[1]]", "return [out_grad[0], in_data[0]]"),),
    ),
    "reads_undeclared_if_there": (
        "undeclared inputs",
        ("backward reads a tensor that it does not declare", "gradient of lhs"),
        (
            ("return [out_grad[0], in_data[0], in_data[1]]", "return [out_grad[0], in_data[0]]"),
            (
                "lhs, rhs = call.inputs.lhs, call.inputs.rhs\n",
                "inputs = call.inputs\n"
                "        lhs, rhs = inputs.lhs, inputs.rhs if 'rhs' in inputs else np.float32(0)\n",
            ),
        ),
    ),
    "ignores_pitches": (
        "larger tensors",
        ("other forward computes another output", "pitches of the Handles"),
        (
            implementation(
                "return replace(kernel, pitched_inputs={0: request.inputs[0].shape[-1]})"
            ),
        ),
    ),
    "writes_between_rows": (
        "larger tensors",
        ("writes outside output", "between its rows"),
        (
            implementation(
                "return replace(kernel, pitched_outputs={0: request.inputs[0].shape[-1]})"
            ),
        ),
    ),
    "wrong_gradient": (
        "gradients",
        ("gradient of rhs is not the derivative at [", "expected"),
        (("lhs * np.cos(rhs)", "lhs * -np.cos(rhs)"),),
    ),
    "gradient_right_for_ones": (
        "gradients",
        ("gradient of lhs is not the derivative",),
        (("lhs_grad = grad * self.scale", "lhs_grad = np.ones_like(grad) * self.scale"),),
    ),
    "zero_that_is_none": (
        "gradients",
        ("gradient of rhs is not the derivative", "got 0.0"),
        (
            (
                MORE,
                "    def list_gradients(self) -> tuple[Any, ...]:\n"
                "        from mxrun.operator.property import GradientKind\n"
                "        return (GradientKind.COMPUTES, GradientKind.ZERO)\n",
            ),
            ("return [(out_grad[0], in_grad[1])]", "return []"),
        ),
    ),
    "unread_output": (
        "unread outputs",
        ("where nothing reads rest, numpy backward fails",),
        (
            (MORE, '    list_outputs = lambda self: ("output", "rest")\n'),
            (
                'lhs, rhs, output = same_shape(("lhs", "rhs", "output"), ',
                'lhs, rhs, output, _ = same_shape(("lhs", "rhs", "output", "rest"), ',
            ),
            ("[lhs, rhs], [output], []", "[lhs, rhs], [output, output], []"),
            ("return [out_grad[0], in_data[0]", "return [*out_grad, in_data[0]"),
            body("call.store(output=output, rest=rhs)"),
            ("* lhs * np.cos(rhs)", "* lhs * np.cos(rhs) + call.output_gradients.rest"),
        ),
    ),
    "unsafe_in_place": (
        "forward in place",
        ("output over rhs", "forward_inplace_option"),
        (
            ("return [(in_data[0], out_data[0])]", "return [(in_data[1], out_data[0])]"),
            body(
                "if call.requests.output in (OpReqType.WRITE, OpReqType.INPLACE):",
                "    call.outputs.output[...] = self.scale * lhs",
                "    call.outputs.output[...] *= np.sin(rhs)",
                "else:",
                "    call.store(output=output)",
            ),
        ),
    ),
    "unsafe_in_place_backward": (
        "backward in place",
        ("gradient of lhs over gradient of output", "backward_inplace_option"),
        (
            ("return [(out_grad[0], in_grad[1])]", "return [(out_grad[0], in_grad[0])]"),
            (
                "        rhs_grad = grad",
                "        call.store(lhs=lhs_grad)\n        rhs_grad = grad",
            ),
            (
                "        call.store(lhs=lhs_grad)\n        call.store(rhs",
                "        call.store(rhs",
            ),
        ),
    ),
    "unsafe_at_once": (
        "backward in place",
        ("gradient of lhs over gradient of output, gradient of rhs over rhs",),
        (
            (
                "return [(out_grad[0], in_grad[1])]",
                "return [(out_grad[0], in_grad[0]), (in_data[1], in_grad[1])]",
            ),
            (
                "        call.store(lhs=lhs_grad)\n",
                "        both = {OpReqType.INPLACE} == set(call.requests)\n"
                "        call.store(lhs=lhs_grad * (3 if both else 1))\n",
            ),
        ),
    ),
    "hides_temporaries": (
        "allocations",
        ("numpy forward hides large temporaries", "forward_resource"),
        (body("output = output + np.zeros(1 << 20, lhs.dtype)[0]", STORE.strip()),),
    ),
    "leaves_memory": (
        "allocations",
        ("numpy forward leaks memory",),
        (
            ("T = TypeVar", "SEEN: list[Any] = []\nT = TypeVar"),
            body("SEEN.append(output.copy())", STORE.strip()),
        ),
    ),
    "allocates_natively": (
        "allocations",
        ("other forward allocates memory inside the call", "expected nothing"),
        (native("call_address(call.duplicate, call.text, 0, 0, 0, 0, 0)"),),
    ),
    "keeps_state": (
        "shared body",
        ("an Operator object shared by two networks mixes up their gradient of lhs",),
        (
            body("self.sine = np.sin(rhs)", STORE.strip()),
            (
                "lhs_grad = grad * self.scale * np.sin(rhs)",
                'lhs_grad = grad * self.scale * getattr(self, "sine", np.sin(rhs))',
            ),
        ),
    ),
    "keeps_a_buffer": (
        "shared body",
        ("a call leaves buffer on its Operator object",),
        (body("self.buffer = output.copy()", STORE.strip()),),
    ),
    "keeps_state_in_the_module": (
        "shared body",
        ("an Operator object shared by two networks mixes up their gradient of lhs",),
        (
            ("T = TypeVar", "SEEN: list[Any] = [0]\nT = TypeVar"),
            body("SEEN[0] = np.sin(rhs)", STORE.strip()),
            (
                "lhs_grad = grad * self.scale * np.sin(rhs)",
                "lhs_grad = grad * self.scale * SEEN[0]",
            ),
        ),
    ),
    "counts_calls": (
        "calls alike",
        ("numpy gives other numbers in a second call with the same inputs: output differs",),
        (
            ("T = TypeVar", "SEEN: list[int] = []\nT = TypeVar"),
            body("SEEN.append(1)", "call.store(output=output + len(SEEN) % 2)"),
        ),
    ),
    "depends_on_old_content": (
        "repetition",
        ("gives output that depends on previous memory content",),
        (
            body(
                "if call.requests.output in (OpReqType.WRITE, OpReqType.INPLACE):",
                "    np.copyto(call.outputs.output, output, where=lhs > 0)",
                "else:",
                "    call.store(output=output)",
            ),
        ),
    ),
    "depends_on_the_threads": (
        "repetition",
        ("other at threads=2 gives another output than at threads=1",),
        (
            implementation(
                "prop = PlantedProperty(PlantedParameters(scale=2.0 + request.device.threads))",
                "return NUMPY.prepare_forward(prop, request)",
            ),
        ),
    ),
    "mutates_an_input": (
        "calls",
        (
            "numpy forward raises ValueError: output array is read-only",
            "mutates_an_input.py:",
            "list_mutated_inputs",
        ),
        (body("rhs *= 2", STORE.strip()),),
    ),
    "mutates_an_input_by_its_address": (
        "calls",
        ("numpy forward changes its input rhs", "list_mutated_inputs"),
        (
            body(
                "array_at(call.inputs.rhs.ctypes.data, rhs.shape, 'float32')[...] = 2",
                STORE.strip(),
            ),
        ),
    ),
    "writes_beyond_its_end": (
        "calls",
        ("numpy forward writes outside output, 4 bytes beyond its end",),
        (
            body(
                STORE.strip(),
                "array_at(call.outputs.output.ctypes.data, (output.size + 1,), 'float32')[-1] = 0",
            ),
        ),
    ),
    "writes_before_its_beginning": (
        "calls",
        ("numpy backward writes outside gradient of lhs, 8 bytes before its beginning",),
        (
            (
                "        call.store(lhs=lhs_grad)\n",
                "        call.store(lhs=lhs_grad)\n"
                "        address = call.input_gradients.lhs.ctypes.data\n"
                "        array_at(address - 8, (1,), 'float32')[...] = 0\n",
            ),
        ),
    ),
    "raises": (
        "calls",
        ("numpy forward raises IndexError", "raises.py:", "(forward)"),
        (body("output[99999999]", STORE.strip()),),
    ),
    "stores_another_shape": (
        "calls",
        (
            "numpy forward raises ValueError: a value of shape",
            "for output, a tensor of shape",
            "stores_another_shape.py:",
            "(forward)",
        ),
        (body("call.store(output=output[None])"),),
    ),
    "stores_an_unknown_name": (
        "calls",
        ("numpy forward raises AttributeError", "has no output 'outptu'; it has: output"),
        (body("call.store(outptu=output)"),),
    ),
    "implementations_differ": (
        "implementations",
        (
            "other at threads=1 gives another output than numpy",
            "the NumPy body is the reference",
        ),
        (
            implementation(
                "prop = PlantedProperty(PlantedParameters(scale=2.001))",
                "return NUMPY.prepare_forward(prop, request)",
            ),
        ),
    ),
    "another_device_differs": (
        "implementations",
        ("other on reference gives another gradient of lhs than numpy",),
        (
            implementation("return kernel", device="reference"),
            (
                "        return NUMPY.prepare_backward(prop, request)\n",
                "        prop = PlantedProperty(PlantedParameters(scale=2.001))\n"
                "        return NUMPY.prepare_backward(prop, request)\n",
            ),
        ),
    ),
    "lacks_a_numpy_backward": (
        "calls",
        ("the NumPy body has no backward", "GradientKind.NONE from list_gradients"),
        (("    def backward(self, call: BackwardCall)", "    def back(self, call: BackwardCall)"),),
    ),
    "lacks_a_backward": (
        "calls",
        ("other declines the backward of a forward that it accepts",),
        (
            implementation("return kernel"),
            ("        return NUMPY.prepare_backward(prop, request)\n", "        return None\n"),
        ),
    ),
    "draws_from_numpy": (
        "calls alike",
        (
            "second call with the same inputs",
            "draws from numpy.random",
            "call.random(i).bits(n)",
        ),
        (body("output = output * np.random.random(lhs.shape)", STORE.strip()),),
    ),
    "draws_from_numpy_for_nothing": (
        "random numbers",
        ("numpy draws from numpy.random", "call.random(i).bits(n)"),
        (body("np.random.random(lhs.shape)", STORE.strip()),),
    ),
    "draws_backward": (
        "calls alike",
        ("the gradient of lhs differs", "call.random(i).bits(n)"),
        (
            (
                "lhs_grad = grad * self.scale * np.sin(rhs)",
                "lhs_grad = grad * np.random.default_rng().random(rhs.shape)",
            ),
        ),
    ),
    "draws_the_same": (
        "steps",
        ("its outputs are the same at every step",),
        (
            (
                MORE,
                "    def forward_resource(self, inputs: Any) -> Any:\n"
                "        from mxrun.operator.property import ResourceKind, ResourceRequest\n\n"
                "        return [ResourceRequest(ResourceKind.RANDOM)]\n",
            ),
        ),
    ),
    "low_precision": (
        "element types",
        ("numpy gives another output in float32 than in float64",),
        (
            body(
                "half = output.astype('float16' if output.dtype == 'float32' else output.dtype)",
                "call.store(output=half)",
            ),
        ),
    ),
}
