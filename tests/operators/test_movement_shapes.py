"""Shape inference, parameters and dependencies of operators that move elements."""

from __future__ import annotations

import pytest

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import PartialShape
from mxrun.operator.property import GradientKind
from mxrun.operator.register import OPERATORS, create, create_from_strings
from mxrun.operator.shape import ShapeContradiction

library.load()

Shapes = list[PartialShape]

KNOWN: list[tuple[str, dict[str, object], Shapes, PartialShape, Shapes, PartialShape]] = [
    ("Reshape", {"shape": (0, -1)}, [(None, 3, 4)], (5, None), [(None, 3, 4)], (5, None)),
    ("Reshape", {"shape": (0, -1)}, [(None, 3, 4)], (5, 12), [(5, 3, 4)], (5, 12)),
    ("Reshape", {"shape": (2, -1, 0)}, [None], None, [None], (2, None, None)),
    ("Reshape", {"shape": (-3, -4, 2, -1)}, [None], None, [None], (None, 2, None)),
    ("Reshape", {"shape": (-4, 2, -1, -2)}, [None], None, [None], None),
    ("Reshape", {"shape": (-4, 2, -1, -2)}, [(6, None)], None, [(6, None)], (2, 3, None)),
    ("Reshape", {"shape": (-3, 0)}, [(None, 2, 3)], (8, 3), [(4, 2, 3)], (8, 3)),
    ("Reshape", {"shape": (6,)}, [(2, None)], None, [(2, 3)], (6,)),
    ("expand_dims", {"axis": 1}, [None], (2, None, 3), [(2, 3)], (2, 1, 3)),
    ("expand_dims", {"axis": -1}, [(2, None)], None, [(2, None)], (2, None, 1)),
    ("squeeze", {"axis": 1}, [(2, None, 3)], None, [(2, 1, 3)], (2, 3)),
    ("squeeze", {}, [(2, None, 3)], (2, 3), [(2, 1, 3)], (2, 3)),
    ("squeeze", {}, [(2, None)], None, [(2, None)], None),
    ("transpose", {}, [None], (2, None, 4), [(4, None, 2)], (2, None, 4)),
    ("transpose", {"axes": (1, 2, 0)}, [(5, None, 7)], (6, None, None), [(5, 6, 7)], (6, 7, 5)),
    ("SwapAxis", {"dim1": 0, "dim2": -1}, [None], (2, 3), [(3, 2)], (2, 3)),
    ("Concat", {"num_args": 2}, [(2, 3), None], (None, 7), [(2, 3), (2, 4)], (2, 7)),
    ("Concat", {"num_args": 2}, [(None, 3), (2, 4)], None, [(2, 3), (2, 4)], (2, 7)),
    ("Concat", {"num_args": 3}, [(2, 3), None, None], None, [(2, 3)] + [(2, None)] * 2, (2, None)),
    ("Concat", {"num_args": 2, "dim": 0}, [None, None], (5, 3), [(None, 3)] * 2, (5, 3)),
    ("SliceChannel", {"num_outputs": 2}, [None], (3, 4), [(3, 8)], (3, 4)),
    ("SliceChannel", {"num_outputs": 2}, [(3, 8)], None, [(3, 8)], (3, 4)),
    (
        "SliceChannel",
        {"num_outputs": 2, "squeeze_axis": True},
        *([None], (3, 4), [(3, 2, 4)], (3, 4)),
    ),
    (
        "Embedding",
        {"input_dim": 9, "output_dim": 4},
        *([None, None], (2, 3, None), [(2, 3), (9, 4)], (2, 3, 4)),
    ),
    ("add_n", {"num_args": 2}, [(2, None), None], (None, 3), [(2, 3), (2, 3)], (2, 3)),
    ("BlockGrad", {}, [None], (2, 3), [(2, 3)], (2, 3)),
    (
        "MakeLoss",
        {"use_sample_weight": True},
        *([(None, 3), (4,)], None, [(4, 3), (4,)], (4, 3)),
    ),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "output", "ins", "out"), KNOWN)
def test_P2_knowledge_flows_both_ways(
    operator: str,
    parameters: dict[str, object],
    inputs: Shapes,
    output: PartialShape,
    ins: Shapes,
    out: PartialShape,
) -> None:
    prop = create(operator, parameters)
    inferred = prop.infer_shape(inputs, [output, *[None] * (len(prop.list_outputs()) - 1)])
    assert (inferred.inputs, inferred.outputs[0]) == (ins, out)


CONTRADICTIONS: list[tuple[str, dict[str, object], Shapes, str]] = [
    ("Reshape", {"shape": (5, -1)}, [(2, 3, 4)], "output"),
    ("Reshape", {"shape": (0, 0, 0, 0)}, [(2, 3, 4)], "data"),
    ("Reshape", {"shape": (-3,)}, [(2,)], "data"),
    ("Reshape", {"shape": (-4, 3, 1, -2)}, [(2, 3, 4)], "data"),
    ("Reshape", {"shape": (6, 5)}, [(2, 3, 4)], "output"),
    ("expand_dims", {"axis": 4}, [(2, 3)], "data"),
    ("squeeze", {"axis": 0}, [(2, 1)], "data"),
    ("squeeze", {"axis": 2}, [(2, 1)], "data"),
    ("transpose", {"axes": (0, 2, 1)}, [(2, 3)], "data"),
    ("SwapAxis", {"dim2": 3}, [(2, 3)], "data"),
    ("Concat", {"num_args": 2}, [(2, 3), (3, 3)], "arg1"),
    ("Concat", {"num_args": 2, "dim": 2}, [(2, 3), (2, 3)], "arg0"),
    ("SliceChannel", {"num_outputs": 2}, [(2, 3)], "data"),
    ("SliceChannel", {"num_outputs": 2, "squeeze_axis": True}, [(2, 4)], "data"),
    ("SliceChannel", {"num_outputs": 2, "axis": 2}, [(2, 4)], "data"),
    ("Embedding", {"input_dim": 9, "output_dim": 4}, [(2,), (9, 5)], "weight"),
    ("add_n", {"num_args": 2}, [(2, 3), (2, 1)], "arg1"),
    ("MakeLoss", {"use_sample_weight": True}, [(4, 3), (5,)], "data"),
    ("MakeLoss", {}, [()], "data"),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "argument"), CONTRADICTIONS)
def test_P3_contradictions_name_the_argument(
    operator: str, parameters: dict[str, object], inputs: Shapes, argument: str
) -> None:
    prop = create(operator, parameters)
    with pytest.raises(ShapeContradiction) as caught:
        prop.infer_shape(inputs, [None] * len(prop.list_outputs()))
    assert caught.value.argument == argument
    assert caught.value.rule


def test_P3_an_output_too_short_for_its_parts_contradicts() -> None:
    prop = create("Concat", {"num_args": 2})
    with pytest.raises(ShapeContradiction, match="at least 3"):
        prop.infer_shape([(2, 3), None], [(2, 1)])


@pytest.mark.parametrize(
    ("operator", "parameters", "said"),
    [
        ("Reshape", {}, "needs a shape"),
        ("Reshape", {"shape": (-1, 2, -1)}, "only one axis can be inferred"),
        ("Reshape", {"target_shape": (0, 0)}, "only one axis can be inferred"),
        ("Reshape", {"shape": (-4, -1, -1)}, "-4 needs two sizes"),
        ("Reshape", {"shape": (-4, 2)}, "-4 needs two sizes"),
        ("Reshape", {"shape": (-4, 2, 1), "reverse": True}, "-4 needs two sizes"),
        ("Reshape", {"shape": (-5,)}, r"'shape\[0\]' cannot be -5"),
        ("transpose", {"axes": (0, 0)}, "each of 0 to 1 once"),
        ("transpose", {"axes": (0, -1)}, r"'axes\[1\]' cannot be -1"),
        ("Concat", {}, "parameter 'num_args' is missing"),
        ("SliceChannel", {"num_outputs": 0}, "'num_outputs' cannot be 0"),
        ("Embedding", {"input_dim": 5}, "parameter 'output_dim' is missing"),
        ("MakeLoss", {"normalization": "vald"}, "valid"),
    ],
)
def test_P10_parameters_that_cannot_be_used_are_said(
    operator: str, parameters: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        create(operator, parameters)


def test_P10_one_axis_is_read_as_mxnet_writes_it() -> None:
    assert create_from_strings("squeeze", {"axis": "-1"}).parameters.axis == (-1,)
    assert create_from_strings("squeeze", {"axis": "(1, 2)"}).parameters.axis == (1, 2)
    assert create_from_strings("squeeze", {"axis": "None"}).parameters.axis is None
    assert create_from_strings("Reshape", {"shape": "(-1,)"}).parameters.shape == (-1,)


@pytest.mark.parametrize(
    ("operator", "parameters", "expected"),
    [
        ("Reshape", {"shape": (-1,)}, {"g"}),
        ("transpose", {}, {"g"}),
        ("Concat", {"num_args": 2}, {"g", "a", "b"}),
        ("SliceChannel", {"num_outputs": 2}, {"g", "h"}),
        ("Embedding", {"input_dim": 2, "output_dim": 2}, {"g", "a"}),
        ("add_n", {"num_args": 3}, {"g"}),
        ("MakeLoss", {}, set()),
        ("MakeLoss", {"normalization": "valid"}, {"a"}),
        ("MakeLoss", {"use_sample_weight": True}, {"b"}),
    ],
)
def test_P5_what_backward_reads(
    operator: str, parameters: dict[str, object], expected: set[str]
) -> None:
    prop = create(operator, parameters)
    inputs, outputs = len(prop.list_arguments()), len(prop.list_outputs())
    reads = prop.declare_backward_dependency(["g", "h"][:outputs], "abc"[:inputs], "yz"[:outputs])
    assert set(reads) == expected


def test_ids_are_int32_and_the_table_has_the_type_it_is_given() -> None:
    prop = create("Embedding", {"input_dim": 2, "output_dim": 2})
    assert prop.infer_type([None, None], [None]) == (["int32", "float32"], ["float32"])
    assert prop.infer_type(["float32", None], ["float64"]) == (["float32", "float64"], ["float64"])
    assert prop.list_gradients() == (GradientKind.ZERO, GradientKind.COMPUTES)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("reshape", "Reshape"),
        ("swapaxes", "SwapAxis"),
        ("concat", "Concat"),
        ("split", "SliceChannel"),
        ("stop_gradient", "BlockGrad"),
        ("make_loss", "MakeLoss"),
        ("ElementWiseSum", "add_n"),
    ],
)
def test_mxnets_other_names(alias: str, name: str) -> None:
    assert OPERATORS.get(alias) is OPERATORS.get(name)
