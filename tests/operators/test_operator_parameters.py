"""Parameters, names and registration of the operators."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from refusals import only_problem

from mxrun import library
from mxrun.base.errors import InternalError, UserError
from mxrun.base.params import Parameters
from mxrun.operator.property import GradientKind, OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import (
    OPERATORS,
    Implementation,
    create,
    create_from_strings,
    implement,
    implementations,
    register,
)

library.load()


def test_P10_mxnets_own_texts_are_read() -> None:
    strings = {
        "kernel": "(3, 3)",
        "num_filter": "32",
        "stride": "[2, 2]",
        "no_bias": "True",
        "cudnn_off": "false",
        "layout": "None",
        "cudnn_tune": "off",
        "workspace": "512",
    }
    parameters = create_from_strings("Convolution", strings).parameters
    assert parameters.kernel == (3, 3)
    assert parameters.stride == (2, 2)
    assert parameters.no_bias is True
    assert parameters.cudnn_off is False
    assert parameters.layout is None
    pooling = create_from_strings(
        "Pooling", {"kernel": "(3,)", "pool_type": "lp", "p_value": "2", "count_include_pad": "1"}
    )
    assert (pooling.parameters.p_value, pooling.parameters.count_include_pad) == (2, True)
    assert create_from_strings("sgd_update", {"lr": "1"}).parameters.lr == 1.0


def test_P11_no_bias_drops_the_bias() -> None:
    for operator, needed in (
        ("Convolution", {"kernel": (1,), "num_filter": 1}),
        ("FullyConnected", {"num_hidden": 1}),
    ):
        assert create(operator, needed).list_arguments() == ("data", "weight", "bias")
        bare = create(operator, {**needed, "no_bias": True})
        assert bare.list_arguments() == ("data", "weight")


def test_P11_softmax_output_hides_its_loss() -> None:
    prop = create("SoftmaxOutput", {"use_sample_weight": True})
    assert prop.list_arguments() == ("data", "label", "sample_weight")
    assert prop.list_outputs() == ("output", "loss")
    assert prop.num_visible_outputs == 1
    assert prop.loss_output == 1
    zero = GradientKind.ZERO
    assert prop.list_gradients() == (GradientKind.COMPUTES, zero, zero)


def test_P11_updates_say_what_they_overwrite() -> None:
    prop = create("sgd_mom_update", {"lr": 0.1, "scheduled": True})
    assert prop.list_arguments() == ("weight", "grad", "mom", "schedule")
    assert prop.list_outputs() == ("output", "mom_output")
    assert prop.num_visible_outputs == 1
    assert prop.list_mutated_inputs() == {0: 0, 2: 1}
    assert prop.list_gradients() == (GradientKind.NONE,) * 4
    assert create("sgd_update", {"lr": 0.1}).list_mutated_inputs() == {0: 0}


VIOLATIONS: list[tuple[str, dict[str, object], str, str]] = [
    ("Convolution", {"kernel": (3, 3)}, "parameter 'num_filter' is missing", "integer >= 1"),
    ("Convolution", {"kernel": (3,), "num_filter": 0}, "'num_filter' cannot be 0", "integer >= 1"),
    ("Convolution", {"kernel": (), "num_filter": 1}, "'kernel' cannot be []", "at least 1"),
    ("Convolution", {"kernel": (1,) * 4, "num_filter": 1}, "'kernel' cannot be", "at most 3"),
    ("Convolution", {"kernel": (3, 0), "num_filter": 1}, "'kernel[1]' cannot be 0", ">= 1"),
    ("Convolution", {"kernel": (3, "a"), "num_filter": 1}, "'kernel[1]' cannot be 'a'", "integer"),
    ("Convolution", {"kernel": (3,), "num_filter": 1, "strid": (1,)}, "'strid'", "stride"),
    ("Convolution", {"kernel": (3, 3), "num_filter": 1, "pad": (1,)}, "pad has 1 numbers", ""),
    ("Convolution", {"kernel": (3,), "num_filter": 3, "num_group": 2}, "not divisible", ""),
    ("Convolution", {"kernel": (3,), "num_filter": 1, "layout": "NCHW"}, "use NCW", ""),
    ("Convolution", {"kernel": (3, 3), "num_filter": 1, "layout": "NHWC"}, "'layout'", "NCHW"),
    ("FullyConnected", {"num_hidden": 2.5}, "'num_hidden' cannot be 2.5", "integer >= 1"),
    ("FullyConnected", {"num_hidden": 2, "no_bias": "yes"}, "'no_bias'", "true or false"),
    ("Activation", {"act_type": "rleu"}, "'act_type' cannot be 'rleu'", "relu"),
    ("Pooling", {}, "kernel is needed unless global_pool", ""),
    ("Pooling", {"kernel": (2,), "pool_type": "lp"}, "needs p_value", ""),
    ("Pooling", {"kernel": (2,), "pool_type": "lp", "p_value": 4}, "'p_value'", "<= 3"),
    ("Pooling", {"kernel": (2,), "pad": (2,)}, "pad 2 must be smaller than its kernel 2", ""),
    (
        "Pooling",
        {"kernel": (2,), "pad": (3,), "pool_type": "avg"},
        "pad 3 must be smaller than its kernel 2 for pool_type avg",
        "",
    ),
    ("Pooling", {"kernel": (2, 2), "pooling_convention": "same"}, "one axis without pad", ""),
    ("SoftmaxOutput", {"smooth_alpha": 1.5}, "'smooth_alpha' cannot be 1.5", "<= 1"),
    ("SoftmaxOutput", {"normalization": "all"}, "'normalization'", "one of null, batch, valid"),
    ("sgd_update", {}, "parameter 'lr' is missing", "number"),
]


@pytest.mark.parametrize(("operator", "parameters", "problem", "expected"), VIOLATIONS)
def test_P13_each_violation_is_named_with_what_is_allowed(
    operator: str, parameters: dict[str, object], problem: str, expected: str
) -> None:
    diagnostic = only_problem(create, operator, parameters)
    assert diagnostic.problem.startswith(f"{operator}: ")
    assert problem in diagnostic.problem
    assert expected in f"{diagnostic.expected} {diagnostic.hint}"


def test_P13_all_problems_come_at_once_with_the_nearest_name() -> None:
    with pytest.raises(UserError) as caught:
        create("Activation", {"act_typ": "relu"})
    problems = {diagnostic.problem: diagnostic for diagnostic in caught.value.diagnostics}
    assert len(problems) == 2
    unknown = problems["Activation: unknown parameter 'act_typ'"]
    assert "'act_type'" in unknown.hint


@pytest.mark.parametrize("operator", ["SoftmaxOutput", "MakeLoss"])
def test_null_of_yaml_is_the_choice_of_that_name(operator: str) -> None:
    assert create(operator, {"normalization": None}).parameters.normalization == "null"
    with pytest.raises(UserError, match="parameter 'grad_scale' cannot be null"):
        create(operator, {"grad_scale": None})
    with pytest.raises(UserError, match="parameter 'act_type' cannot be null"):
        create("LeakyReLU", {"act_type": None})


@pytest.mark.parametrize(
    ("operator", "parameters", "hint"),
    [
        ("Convolution", {"kernel": 3, "num_filter": 1}, "write [3, 3], one number for each axis"),
        ("Convolution", {"kernel": (3,), "num_filter": 1, "stride": 2}, "write [2]"),
        ("Pooling", {"kernel": (2, 2, 2), "pad": 1}, "write [1, 1, 1], one number for each axis"),
        ("Convolution", {"kernel": "3", "num_filter": 1}, ""),
        ("Convolution", {"kernel": True, "num_filter": 1}, ""),
    ],
)
def test_one_number_in_place_of_a_list_is_answered_with_the_list(
    operator: str, parameters: dict[str, object], hint: str
) -> None:
    diagnostic = only_problem(create, operator, parameters)
    assert diagnostic.hint == hint


def test_P14_an_unknown_operator_gets_the_nearest_names() -> None:
    with pytest.raises(UserError, match="'Convolution'"):
        create("Convolutoin", {})


@pytest.mark.parametrize("internal", ["window", "type_string", "label_arguments", "model_config"])
def test_P16_internals_are_not_settable(internal: str) -> None:
    with pytest.raises(UserError, match="unknown parameter"):
        create("Convolution", {"kernel": (1,), "num_filter": 1, internal: 1})


def test_mxnets_aliases_are_the_same_operators() -> None:
    for alias, name in (
        ("_plus", "elemwise_add"),
        ("_Plus", "elemwise_add"),
        ("_add", "elemwise_add"),
        ("flatten", "Flatten"),
        ("Softmax", "SoftmaxOutput"),
    ):
        assert OPERATORS.get(alias) is OPERATORS.get(name)


class NoParameters(Parameters):
    """None."""


class Misnamed(OperatorProperty[NoParameters]):
    """Operator with another name than the registered one."""

    type_string: ClassVar[str] = "misnamed"
    parameter_type = NoParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        return PartialInference(inputs, outputs, [])

    def create_operator(self) -> Any:
        raise NotImplementedError


def test_P20_a_registered_name_must_be_the_type_string() -> None:
    with pytest.raises(InternalError, match="type string is 'misnamed'"):
        register("named")(Misnamed)
    assert "named" not in OPERATORS


def test_P14_a_name_or_alias_is_taken_once() -> None:
    class Again(Misnamed):
        type_string = "Flatten"

    class Alias(Misnamed):
        type_string = "brand_new"

    with pytest.raises(InternalError, match="'Flatten' is registered twice"):
        register("Flatten")(Again)
    with pytest.raises(InternalError, match="'_plus' is registered twice"):
        register("brand_new", "_plus")(Alias)
    assert "brand_new" not in OPERATORS


def test_P20_an_implementation_is_registered_once() -> None:
    decorate = implement("misnamed", backend="twin")
    decorate(type("First", (Implementation,), {}))
    with pytest.raises(InternalError, match="two implementations named 'twin'"):
        decorate(type("Second", (Implementation,), {}))
    assert list(implementations("misnamed")) == ["twin"]
