"""Operator names of other frameworks are answered with the names of mxrun."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from refusals import only_problem

from mxrun import library
from mxrun.base import foreign_names as other_names
from mxrun.base.errors import Diagnostics, SourceLocation, UserError
from mxrun.base.near_names import folded
from mxrun.base.registry import FOREIGN, Registry
from mxrun.config.choice import Choice, read_choice
from mxrun.config.load import load_text
from mxrun.config.marked import SourceNode
from mxrun.frontend.axes import Ranks, with_axes
from mxrun.frontend.instantiate import instantiate
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.operator import foreign_names
from mxrun.operator.foreign_names import elsewhere, foreign_parameter, missing
from mxrun.operator.optimizer import OPTIMIZERS
from mxrun.operator.register import OPERATORS, create
from mxrun.train.initializer import INITIALIZERS
from mxrun.train.metric_kind import METRICS
from mxrun.train.schedule import SCHEDULES

library.load()


def refusal(name: str) -> str:
    found = only_problem(create, name, {})
    assert found.problem == f"unknown operator {name!r}"
    return found.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Conv2d", "mxrun calls it Convolution: {num_filter: 16, kernel: 3}"),
        ("Conv2D", "mxrun calls it Convolution: {num_filter: 16, kernel: 3}"),
        ("MaxPool2d", "mxrun calls it Pooling: {pool_type: max, kernel: 2, stride: 2}"),
        (
            "CrossEntropyLoss",
            "mxrun calls it SoftmaxOutput: {label: label}, which contains the softmax",
        ),
        (
            "MultiHeadAttention",
            "mxrun calls it scaled_dot_product_attention: {num_heads: 4, packed: true}, of "
            "queries, keys and values that a FullyConnected projects",
        ),
        (
            "LSTM",
            "mxrun calls it RNN: {mode: lstm, state_size: 200, num_layers: 1, layout: NTC, "
            "initial_state: zeros}",
        ),
        ("Input", "inputs are declared in network.inputs, variables in network.variables"),
        ("plus_scalar", "`mxrun ops` lists the operators"),
        ("LayerNormalization", "mxrun calls it LayerNorm"),
        ("Dense", "mxrun calls it FullyConnected: {num_hidden: 10}"),
        ("ReLU", "mxrun calls it Activation: {act_type: relu}"),
        ("batch_norm", "did you mean 'BatchNorm'?"),
        ("GroupNorm", "mxrun has no group normalization yet; `mxrun ops` lists the operators"),
        ("Foo", "`mxrun ops` lists the operators"),
        ("_reorde", "`mxrun ops` lists the operators"),
    ],
)
def test_an_unknown_operator_is_answered_with_what_it_may_mean(name: str, hint: str) -> None:
    assert refusal(name) == hint


def test_every_counterpart_is_a_layer_as_it_is_written() -> None:
    foreign = OPERATORS.foreign()
    for name, forms in OPERATORS.attribute(FOREIGN).items():
        for form in filter(forms.get, forms):
            assert re.split(r"\W", form)[0] == name
    for form in set(foreign.values()):
        operator, body = _layer(form)
        property_class = OPERATORS.get(operator)
        assert not property_class.is_internal
        fields = property_class.parameter_type.model_fields
        given = {key: value for key, value in body.items() if key in fields}
        if "num_args" in fields:
            given["num_args"] = 2
        given = with_axes(property_class, given, None, Ranks({}), 2)
        arguments = {*create(operator, given).list_arguments(), "inputs"}
        assert body.keys() <= {*fields, *arguments}


def test_a_name_in_another_framework_belongs_to_one_operator() -> None:
    words = Counter(
        word
        for forms in OPERATORS.attribute(FOREIGN).values()
        for text in forms.values()
        for word in text.split()
    )
    assert len(words) > 180
    assert set(words.values()) == {1}
    for word in words:
        assert word == folded(word)
        assert len(OPERATORS.foreign_to(word)) == 1
    assert OPERATORS.foreign_to("Max_Pool2d") == ["Pooling"]
    assert OPERATORS.foreign_to("groupnorm") == []


@pytest.mark.parametrize(
    ("operator", "name", "hint"),
    [
        ("RNN", "hidden_size", "mxrun calls it state_size"),
        ("RNN", "batch_first", "mxrun calls it layout: NTC"),
        ("FullyConnected", "out_features", "mxrun calls it num_hidden"),
        ("FullyConnected", "padding", ""),
        ("FullyConnected", "in_features", "leave it out: it follows from the layer's input"),
        ("Embedding", "num_embeddings", "mxrun calls it input_dim"),
        ("FullyConnected", "use_bias", "no_bias: true leaves the bias out"),
        ("BatchNorm", "affine", "fix_gamma: false trains the factors, too"),
    ],
)
def test_a_parameter_is_answered_with_ours_if_the_operator_has_it(
    operator: str, name: str, hint: str
) -> None:
    assert foreign_parameter(name, OPERATORS.get(operator).parameter_type.model_fields) == hint


def test_every_counterpart_of_a_parameter_is_a_parameter() -> None:
    fields = {
        field
        for name in OPERATORS.names()
        for field in OPERATORS.get(name).parameter_type.model_fields
    }
    forms = {form for forms in foreign_names._PARAMETERS.values() for form in forms}
    assert {form.partition(":")[0] for form in forms} <= fields


def test_no_name_is_a_single_letter() -> None:
    """A text in place of a tuple of names would name its letters."""
    tables = [
        table
        for module in (foreign_names, other_names)
        for table in vars(module).values()
        if isinstance(table, Mapping)
    ]
    assert len(tables) >= 4
    assert [key for table in tables for key in table if len(str(key)) < 2] == []


def test_no_operator_has_a_parameter_that_is_to_be_left_out() -> None:
    fields = {
        folded(field)
        for name in OPERATORS.names()
        for field in OPERATORS.get(name).parameter_type.model_fields
    }
    # These two are parameters of some operators, and left out of the others.
    assert fields & set(foreign_names._NO_PARAMETERS) <= {"inputdim", "inputsize"}


def test_no_name_is_both_ours_and_missing() -> None:
    for name in {**foreign_names._MISSING, **foreign_names._ELSEWHERE}:
        assert name not in OPERATORS.foreign()
        assert bool(missing(name)) != bool(elsewhere(name))
        assert name not in {folded(operator) for operator in OPERATORS.names()}


@pytest.mark.parametrize(
    ("registry", "name", "hint"),
    [
        (OPTIMIZERS, "momentum", "mxrun calls it sgd: {momentum: 0.9}"),
        (OPTIMIZERS, "SGD", "did you mean 'sgd'?"),
        (OPTIMIZERS, "Adadelta", "mxrun has no such optimizer yet"),
        (SCHEDULES, "StepLR", "mxrun calls it step: {epochs: 10, factor: 0.1}"),
        (SCHEDULES, "ReduceLROnPlateau", "mxrun calls it plateau"),
        (INITIALIZERS, "he_normal", "mxrun calls it msra"),
        (METRICS, "acc", "mxrun calls it accuracy"),
        (METRICS, "AUROC", "mxrun calls it auc"),
        (TRANSFORMS, "RandomHorizontalFlip", "mxrun calls it flip"),
        (
            TRANSFORMS,
            "ToTensor",
            "images are read as numbers from 0 to 1 in any case: leave it out",
        ),
        (TRANSFORMS, "RandomCrop", "did you mean 'random_crop'?"),
        (DATASETS, "ImageFolder", "did you mean 'image_folder'?"),
    ],
)
def test_names_of_the_training_section_are_translated(
    registry: Registry[Any], name: str, hint: str
) -> None:
    with pytest.raises(UserError) as caught:
        registry.get(name)
    assert caught.value.diagnostics[0].hint == hint


@pytest.mark.parametrize(
    "registry", [OPTIMIZERS, SCHEDULES, INITIALIZERS, METRICS, TRANSFORMS, DATASETS]
)
def test_every_translation_is_a_choice_as_it_is_written(registry: Registry[Any]) -> None:
    for name in registry:
        registry.get(name)
    foreign = registry.foreign()
    assert foreign
    assert not foreign.keys() & {folded(name) for name in registry}
    assert not foreign.keys() & other_names._HINTS[registry.kind].keys()
    assert all(len(name) > 1 for name in foreign)
    for written in set(foreign.values()):
        form = re.split(", (?:which|as)", written)[0]
        choice = read_choice(load_text(form, SourceLocation("", 1, 1), Diagnostics()))
        assert isinstance(choice, Choice)
        if registry is DATASETS:
            assert choice.kind in list(registry)
            continue
        problems = Diagnostics()
        assert instantiate(choice, registry, problems), [str(each) for each in problems]


def _layer(form: str) -> tuple[str, dict[str, object]]:
    """Return the operator and the parameters of a form, whose note is left out."""
    operator, _, rest = form.partition(": {")
    if not rest:
        return operator, {}
    text = f"{operator}: {{{rest.partition('}')[0]}}}"
    layer = load_text(text, SourceLocation("", 1, 1), [])
    assert isinstance(layer, SourceNode)
    plain = layer.plain()[operator]
    assert isinstance(plain, dict)
    return operator, plain
