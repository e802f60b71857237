"""Faults of what an operator declares: shapes, types, losses, hints, costs, documentation."""

from __future__ import annotations

from planted import MORE, Fault

FAULTS: dict[str, Fault] = {
    "shape_from_nothing": (
        "knowing nothing",
        ("infer_shape gives lhs a shape though none is known", "expected ?", "got [6]"),
        (
            (
                "        return PartialInference([lhs, rhs], [output], [])\n",
                "        lhs = (6,) if lhs is None else lhs\n"
                "        return PartialInference([lhs, rhs], [output], [])\n",
            ),
        ),
    ),
    "false_shape": (
        "shapes",
        ("infer_shape infers a false shape of lhs where", "expected [4, 3]"),
        (
            (
                "        return PartialInference([lhs, rhs], [output], [])\n",
                "        known = [shape for shape in (*inputs, *outputs) if shape]\n"
                "        guessed = [tuple(d or 1 for d in shape) for shape in known] or [None]\n"
                "        if lhs is not None and None in lhs:\n"
                "            lhs = guessed[0]\n"
                "        return PartialInference([lhs, rhs], [output], [])\n",
            ),
        ),
    ),
    "accepts_contradictions": (
        "shapes",
        ("infer_shape accepts output [5, 3] for inputs that give [4, 3]", "ShapeContradiction"),
        (
            (
                'same_shape(("lhs", "rhs", "output"), [*inputs, *outputs], "elementwise")',
                '*same_shape(("lhs", "rhs"), [*inputs], "elementwise"), (outputs[0] or inputs[0])',
            ),
        ),
    ),
    "chokes_on_little": (
        "shapes",
        ("infer_shape where lhs is unknown raises", "planted"),
        (
            (
                "        return PartialInference([lhs, rhs], [output], [])\n",
                "        len(inputs[0])\n"
                "        return PartialInference([lhs, rhs], [output], [])\n",
            ),
        ),
    ),
    "leaves_shapes_open": (
        "cases",
        ("no shape of the first argument gives those of all others",),
        (("[lhs, rhs], [output], []", "[lhs, rhs], [None], []"),),
    ),
    "loses_its_gradient": (
        "losses",
        ("the loss has no gradient", "list_gradients"),
        (
            (
                MORE,
                "    def list_gradients(self) -> Any:\n"
                "        from mxrun.operator.property import GradientKind\n\n"
                "        return (GradientKind.NONE, GradientKind.NONE)\n\n"
                "    @property\n"
                "    def loss_output(self) -> int:\n"
                "        return 0\n",
            ),
            (
                'same_shape(("lhs", "rhs", "output"), [*inputs, *outputs], "elementwise")',
                '*same_shape(("lhs", "rhs"), inputs, "elementwise"), (1,)',
            ),
            (
                "output = self.scale * lhs * np.sin(rhs)",
                "output = (self.scale * lhs * np.sin(rhs)).sum().reshape(1)",
            ),
        ),
    ),
    "undocumented_parameter": (
        "documentation",
        ("the parameter scale is not documented",),
        ((' description="Multiplies the product.",', ""),),
    ),
    "undocumented_operator": (
        "documentation",
        ("PlantedProperty has no docstring",),
        (
            (
                '    """output = scale * lhs * sin(rhs). Backward reads the output\'s gradient and '
                'both inputs."""\n',
                "",
            ),
        ),
    ),
    "no_round_trip": (
        "parameters",
        ("do not survive a round trip", "2020"),
        (
            ("class PlantedParameters(", "import datetime\n\n\nclass PlantedParameters("),
            (
                "    scale: Float32",
                "    day: datetime.date = Field(\n"
                '        default=datetime.date(2020, 1, 1), description="A day.",\n'
                "        examples=[datetime.date(2020, 1, 1)],\n    )\n"
                "    scale: Float32",
            ),
        ),
    ),
    "hint_of_nothing": (
        "hints",
        ("backward_inplace_option pairs tensors that cannot share memory",),
        (("return [(out_grad[0], in_grad[1])]", "return [(out_data[0], in_grad[1])]"),),
    ),
    "type_left_open": (
        "types",
        ("infer_type leaves output unknown",),
        (
            (
                MORE,
                "    def infer_type(self, inputs: Any, outputs: Any) -> Any:\n"
                "        return [inputs[0] or inputs[1]] * 2, outputs\n",
            ),
        ),
    ),
    "uncountable": (
        "costs",
        ("flops is not a valid count", "got -1"),
        ((MORE, "    def flops(self, inputs: Any, outputs: Any) -> int:\n        return -1\n"),),
    ),
    "nameless": (
        "names",
        ("every tensor needs a name of its own", "lhs twice"),
        (('return ("lhs", "rhs")', 'return ("lhs", "lhs")'),),
    ),
    "loss_of_many": (
        "losses",
        ("the loss is not one number",),
        (
            (
                MORE,
                "    @property\n    def loss_output(self) -> int:\n        return 0\n",
            ),
        ),
    ),
}
