"""Sizes of Deconvolution: MXNet's formula, target_shape, backward inference, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from operator_row import Row

from mxrun.base.errors import UserError
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.operator.register import create, create_from_strings
from mxrun.operator.shape import ShapeContradiction

# (parameters beside num_filter 2, data's sizes, output's sizes as MXNet 1.9.1 infers them)
SIZES: list[tuple[dict[str, Any], Shape, Shape]] = [
    ({"kernel": (3, 3)}, (5, 5), (7, 7)),
    ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "adj": (1, 1)}, (5, 5), (10, 10)),
    ({"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "dilate": (2, 2)}, (5, 5), (11, 11)),
    ({"kernel": (1, 1), "pad": (2, 2)}, (5, 5), (1, 1)),
    ({"kernel": (3, 3), "stride": (2, 2), "target_shape": (8, 9)}, (5, 5), (8, 9)),
    ({"kernel": (3, 3), "stride": (2, 2), "target_shape": (11, 11)}, (5, 5), (11, 11)),
    (
        {"kernel": (3, 3), "stride": (2, 2), "target_shape": (8, 9), "pad": (9, 9), "adj": (7, 7)},
        (5, 5),
        (8, 9),
    ),
    ({"kernel": (3, 3), "target_shape": (0, 0)}, (5, 5), (7, 7)),
    ({"kernel": (3,), "stride": (2,), "pad": (1,), "adj": (1,)}, (5,), (10,)),
    ({"kernel": (3, 3, 3), "stride": (2, 2, 2), "target_shape": (10,) * 3}, (5,) * 3, (10,) * 3),
]


@pytest.mark.parametrize(("parameters", "data", "output"), SIZES)
def test_sizes_are_mxnets(parameters: dict[str, Any], data: Shape, output: Shape) -> None:
    prop = create("Deconvolution", {"num_filter": 2, **parameters})
    inferred = prop.infer_shape([(1, 4, *data), None], [None])
    assert inferred.outputs == [(1, 2, *output)]
    assert inferred.inputs[1] == (4, 2, *parameters["kernel"])


def test_P2_knowledge_flows_to_the_inputs() -> None:
    prop = create(
        "Deconvolution",
        {"kernel": (4, 3), "stride": (2, 1), "pad": (1, 0), "num_filter": 6, "num_group": 2},
    )
    assert prop.infer_shape([None, (8, None, None, None)], [(5, None, 14, 9)]).inputs == [
        (5, 8, 7, 7),
        (8, 3, 4, 3),
    ]
    # Several data sizes give the same target.
    prop = create("Deconvolution", {"kernel": (4,), "num_filter": 1, "target_shape": (9,)})
    inferred = prop.infer_shape([(2, 3, None), None], [None])
    assert (inferred.inputs[0], inferred.outputs[0]) == ((2, 3, None), (2, 1, 9))


CONTRADICTIONS: list[tuple[dict[str, Any], PartialShape, PartialShape, str, str]] = [
    ({"kernel": (3,), "num_group": 2}, (1, 3, 4), None, "data", "num_group 2"),
    ({"kernel": (1,), "pad": (3,)}, (1, 2, 5), None, "data", "pad [3]"),
    ({"kernel": (3,), "stride": (2,), "target_shape": (12,)}, (1, 2, 5), None, "data", "target"),
    ({"kernel": (3,), "target_shape": (4,)}, (1, 2, 5), None, "output", "stride 1"),
    ({"kernel": (3,), "stride": (2,)}, (1, 2, None), (1, 2, 6), "output", "kernel, stride"),
    ({"kernel": (3,)}, (1, 2, 5), (1, 2, 6), "output", "data, kernel"),
    ({"kernel": (3, 3)}, (1, 2, 5), None, "data", "kernel [3, 3]"),
]


@pytest.mark.parametrize(("parameters", "data", "output", "argument", "rule"), CONTRADICTIONS)
def test_P3_a_contradiction_names_argument_and_rule(
    parameters: dict[str, Any],
    data: PartialShape,
    output: PartialShape,
    argument: str,
    rule: str,
) -> None:
    with pytest.raises(ShapeContradiction) as caught:
        create("Deconvolution", {"num_filter": 2, **parameters}).infer_shape([data, None], [output])
    assert caught.value.argument == argument
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"adj": (1,)}, "adj 1 must be smaller than its stride 1"),
        ({"adj": (1, 1)}, "adj has 2 numbers, but kernel has 1"),
        ({"kernel": (3, 3), "target_shape": (4, 0)}, "target_shape has a 0"),
        ({"num_filter": 3, "num_group": 2}, "not divisible"),
        ({"pad": (1, 1)}, "pad has 2 numbers"),
    ],
)
def test_P13_each_violation_is_named(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        create("Deconvolution", {"kernel": (3,), "num_filter": 2, **parameters})


def test_P10_mxnets_own_texts_are_read() -> None:
    prop = create_from_strings(
        "Deconvolution",
        {"kernel": "(4, 4)", "num_filter": "8", "stride": "(2, 2)", "adj": "(0, 0)"},
    )
    assert prop.list_arguments() == ("data", "weight")
    with_bias = create_from_strings(
        "Deconvolution", {"kernel": "(4,)", "num_filter": "8", "no_bias": "False"}
    )
    assert with_bias.list_arguments() == ("data", "weight", "bias")


def test_R4_the_columns_of_as_many_images_as_workspace_allows() -> None:
    row = Row("Deconvolution", {"kernel": (3, 3), "num_filter": 4, "workspace": 0}, (7, 2, 5, 5))
    (space,) = row.create().forward_resource([TensorSpec(row.shape)])
    assert space.nbytes == 4 * 4 * 9 * 25
