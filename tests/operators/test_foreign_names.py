"""Operator names of other frameworks are answered with the names of mxrun."""

from __future__ import annotations

import pytest

from mxrun import library
from mxrun.base.errors import SourceLocation, UserError
from mxrun.config.load import load_text
from mxrun.config.marked import SourceNode
from mxrun.operator import foreign_names
from mxrun.operator.foreign_names import Counterpart, counterpart, missing
from mxrun.operator.register import OPERATORS, create

library.load()


def refusal(name: str) -> str:
    with pytest.raises(UserError) as caught:
        create(name, {})
    (found,) = caught.value.diagnostics
    assert found.problem == f"unknown operator {name!r}"
    return found.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Conv2d", "mxrun calls it Convolution: {num_filter: 16, kernel: [3, 3]}"),
        ("Conv2D", "mxrun calls it Convolution: {num_filter: 16, kernel: [3, 3]}"),
        ("Dense", "mxrun calls it FullyConnected: {num_hidden: 10}"),
        ("ReLU", "mxrun calls it Activation: {act_type: relu}"),
        ("batch_norm", "did you mean 'BatchNorm'?"),
        ("RNN", "mxrun has no recurrent layers yet; `mxrun ops` lists the operators"),
        ("LayerNorm", "mxrun has no layer normalization yet; `mxrun ops` lists the operators"),
        ("Foo", "`mxrun ops` lists the operators"),
        ("_reorde", "`mxrun ops` lists the operators"),
    ],
)
def test_an_unknown_operator_is_answered_with_what_it_may_mean(name: str, hint: str) -> None:
    assert refusal(name) == hint


def test_every_counterpart_is_a_layer_as_it_is_written() -> None:
    for found in set(foreign_names._COUNTERPARTS.values()):
        property_class = OPERATORS.get(found.operator)
        assert not property_class.is_internal
        body = _body(found)
        fields = property_class.parameter_type.model_fields
        given = {key: value for key, value in body.items() if key in fields}
        if "num_args" in fields:
            given["num_args"] = 2
        arguments = {*create(found.operator, given).list_arguments(), "inputs"}
        assert body.keys() <= {*fields, *arguments}


def test_no_name_is_both_ours_and_missing() -> None:
    for name in foreign_names._MISSING:
        assert counterpart(name) is None
        assert missing(name)
        assert name not in OPERATORS


def _body(found: Counterpart) -> dict[str, object]:
    """The parameters of a counterpart's YAML."""
    layer = load_text(found.layer, SourceLocation("", 1, 1), [])
    assert isinstance(layer, SourceNode)
    if isinstance(layer.value, str):
        return {}
    plain = layer.plain()[found.operator]
    assert isinstance(plain, dict)
    return plain
