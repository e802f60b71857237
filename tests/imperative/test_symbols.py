"""Symbols composed by calls, by name and by arithmetic; their names, attributes and inference."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import bundled
import numpy as np
import pytest
from commands import python_output
from layer_configs import config_file
from oracles.peer import MXNet
from peer_scripts import run_in

from mxrun import library, sym
from mxrun.base.errors import UserError
from mxrun.base.flags import runs_folder
from mxrun.commands.plot import plot
from mxrun.config.bundled import find_config
from mxrun.graph.naming_scopes import fresh_names
from mxrun.preparation.planning import load


@pytest.fixture(autouse=True)
def _names_from_zero() -> Any:
    with fresh_names():
        yield


def x() -> Any:
    return sym.Variable("x")


# -- un-applied operators --------------------------------------------------------------------------


def test_X1_three_kinds_of_nodes() -> None:
    variable, unapplied = x(), sym.Activation(act_type="relu", name="act")
    operator = unapplied(variable)
    assert (variable.is_unapplied, unapplied.is_unapplied, operator.is_unapplied) == (0, 1, 0)
    assert repr(variable) == "<Symbol x>"
    assert repr(unapplied) == "<Symbol act: un-applied Activation>"
    assert repr(operator) == "<Symbol act>"
    assert operator.debug_str().splitlines()[2:] == [
        "Variable:x",
        "-" * 20,
        "Op:Activation, Name=act",
        "Inputs:",
        "\targ[0]=x(0)",
        "Attrs:",
        "\tact_type=relu",
    ]


def test_X1_plot_prints_each_kind() -> None:
    (unapplied,) = plot(["Activation"], (), runs_folder())["nodes"]
    assert unapplied["kind"] == "unapplied"
    assert unapplied["inputs"][0]["node"] is None
    kinds = {
        node["kind"]
        for node in plot([str(find_config("digits_lenet"))], (), runs_folder())["nodes"]
    }
    assert kinds == {"input", "variable", "operator"}


@pytest.mark.full
def test_X1_plot_draws_a_saved_symbol(tmp_path: Path) -> None:
    path = tmp_path / "net-symbol.json"
    fc = sym.FullyConnected(sym.Variable("x", shape=(2, 5)), num_hidden=3, name="fc")
    sym.SoftmaxOutput(fc, name="softmax").save(path)
    nodes = {node["name"]: node for node in plot([str(path)], (), runs_folder())["nodes"]}
    assert {name: node["kind"] for name, node in nodes.items()} == {
        "x": "input",
        "fc_weight": "variable",
        "fc_bias": "variable",
        "fc": "operator",
        "softmax_label": "variable",
        "softmax": "operator",
    }
    assert nodes["fc"]["outputs"] == [{"name": "output", "shape": [2, 3]}]
    assert "fc" in python_output("-m", "mxrun", "plot", str(path))
    with pytest.raises(UserError, match="takes no KEY=VALUE"):
        plot([str(path)], ["a=1"], runs_folder())


def test_X1_an_unapplied_operator_is_composed_any_number_of_times() -> None:
    relu = sym.Activation(act_type="relu", name="relu")
    assert relu(data=x()).list_arguments() == ["x"]
    assert relu(sym.Variable("y"), name="other").list_outputs() == ["other_output"]
    # MXNet composes by the variable that would stand for the input.
    assert relu(relu_data=sym.Variable("z")).list_arguments() == ["z"]
    assert relu.list_arguments() == ["relu_data"]
    assert relu.is_unapplied


def test_X1_an_unapplied_operator_used_as_an_input_has_variables() -> None:
    fc = sym.FullyConnected(num_hidden=3, name="fc")
    net = sym.Activation(fc, act_type="relu", name="act") + fc
    assert net.list_arguments() == ["fc_data", "fc_weight", "fc_bias"]
    assert fc.infer_shape(fc_data=(2, 5))[1] == [(2, 3)]
    assert fc.graph_hash() == fc(sym.Variable("fc_data")).graph_hash()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fc: fc(dat=x()), "no argument 'dat'"),
        (lambda fc: fc(x(), x(), x(), x()), "too many inputs"),
        (lambda fc: fc(x())(x()), "has its inputs already"),
        (lambda fc: fc(x())(y=x()), "no variable 'y'"),
        (lambda fc: fc(data=3), "'data' is no symbol"),
        (lambda fc: fc(sym.SliceChannel(x(), num_outputs=2)), "takes one output"),
    ],
)
def test_X2_bad_compositions_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(sym.FullyConnected(num_hidden=3, name="fc"))


# -- composition -----------------------------------------------------------------------------------


def test_X2_a_symbol_is_composed_with_others() -> None:
    first = sym.FullyConnected(x(), num_hidden=4, name="first")
    second = sym.FullyConnected(sym.Variable("h"), num_hidden=3, name="second")
    net = second(h=first, name="renamed")
    assert net.list_arguments() == [
        *("x", "first_weight", "first_bias", "second_weight", "second_bias")
    ]
    assert net.list_outputs() == ["renamed_output"]
    assert second.list_arguments()[0] == "h"
    assert net.get_children().list_outputs() == ["first_output", "second_weight", "second_bias"]
    assert x().get_children() is None


@pytest.mark.full
def test_X2_names_are_equal_in_another_process() -> None:
    script = (
        "from mxrun import sym; x = sym.Variable('x');"
        "net = sym.Activation(sym.FullyConnected(x, num_hidden=3) * 2, act_type='relu');"
        "print(net.get_internals().list_outputs(), net.graph_hash())"
    )
    net = sym.Activation(sym.FullyConnected(x(), num_hidden=3) * 2, act_type="relu")
    expected = f"{net.get_internals().list_outputs()} {net.graph_hash()}\n"
    # Strings have other hashes in this process.
    assert python_output("-c", script, env={"PYTHONHASHSEED": "1"}) == expected


def test_X2_name_managers_nest() -> None:
    with sym.Prefix("a_"):
        one = sym.FullyConnected(x(), num_hidden=2)
        with sym.NameManager():
            two = sym.FullyConnected(one, num_hidden=2)
        three = sym.FullyConnected(two, num_hidden=2, name="three")
    assert [one.name, two.name, three.name] == [
        *("a_fullyconnected0", "fullyconnected0", "a_three")
    ]
    assert three.list_arguments()[-1] == "a_three_bias"


def test_X2_groups_internals_and_outputs_by_name() -> None:
    fc = sym.FullyConnected(x(), num_hidden=4, name="fc")
    split = sym.SliceChannel(fc, num_outputs=2, name="split")
    both = sym.Group([split, fc])
    assert both.list_outputs() == ["split_output0", "split_output1", "fc_output"]
    assert both["fc_output"].name == "fc"
    assert both.get_internals()["fc_weight"].list_outputs() == ["fc_weight"]
    assert [each.list_outputs()[0] for each in both] == both.list_outputs()
    assert both[1:].list_outputs() == ["split_output1", "fc_output"]
    assert (both.name, split.name) == (None, "split")
    assert repr(both) == "<Symbol group [split, split, fc]>"
    with pytest.raises(UserError, match="did you mean 'fc_output'"):
        both["fc_outpt"]
    with pytest.raises(IndexError):
        both[3]
    with pytest.raises(UserError, match="at least one symbol"):
        sym.Group([])


def test_X2_an_operator_s_inputs_and_parameters() -> None:
    conv = sym.Convolution(x(), None, None, kernel=[3, 3], num_filter=np.int64(2), name="c")
    assert conv.list_attr() == {"kernel": "(3, 3)", "num_filter": "2"}
    assert sym.Concat(x(), conv, dim=1, name="cat").attr("num_args") == "2"
    assert sym.concat(x(), conv).name == "concat0"
    assert sym.Reshape(x(), (0, -1)).attr("shape") == "(0, -1)"
    assert sym.Cast(x(), dtype=np.float64).attr("dtype") == "float64"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sym.FullyConnected(x(), num_hiden=3), "did you mean 'num_hidden'"),
        (lambda: sym.FullyConnected(x()), "num_hidden"),
        (lambda: sym.FullyConnected(data=3, num_hidden=3), "'data' is no symbol"),
        (lambda: sym.FullyConnected(x(), data=x(), num_hidden=3), "given twice"),
        (lambda: sym.Activation(x(), x(), act_type="relu"), "too many positional arguments"),
        (lambda: sym.Activation(x(), act_type="relu", attr={"mood": "good"}), "__mood__"),
        (lambda: sym.Variable("v", mood="good"), "__mood__"),
        (lambda: sym.Variable("v", dtype="float31"), "float32"),
        (lambda: sym.AttrScope(mood=3), "'mood' is no string"),
        (lambda: bool(x()), "no truth value"),
        (lambda: sym.Group([x(), x() + 1]).attr("a"), "a group has no attr"),
    ],
)
def test_X7_bad_calls_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_operators_are_found_by_name() -> None:
    assert {"Convolution", "elemwise_add"} <= {*sym.list_operators()}
    assert "_reorder" not in sym.list_operators()
    described = sym.describe_operator("FullyConnected")
    assert described.tensor_names == ("data", "weight", "bias")
    assert "num_hidden" in described.fields
    function = sym.FullyConnected
    assert [*inspect.signature(function).parameters][:4] == ["data", "weight", "bias", "num_hidden"]
    assert "Number of output features" in inspect.getdoc(function)
    assert "Convolution" in dir(sym)
    for missing in ("Convolutoin", "_reorder"):
        with pytest.raises(AttributeError, match=missing):
            getattr(sym, missing)


def test_plugins_are_functions_too(tmp_path: Path, separate_registry: None) -> None:
    assert not hasattr(sym, "tripled_by_plugin")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from mxrun.operator.simple import simple_operator\n\n"
        '@simple_operator("tripled_by_plugin")\n'
        "def tripled_by_plugin(x):\n"
        '    "output = 3 x."\n'
        "    return 3 * x\n"
    )
    library.load_plugin(str(plugin))
    assert sym.tripled_by_plugin(x(), name="t").list_outputs() == ["t_output"]


# -- the same graphs as configs --------------------------------------------------------------------


def composed_by_calls(name: str) -> Any:
    net = sym.Variable("data")
    for operator, layer, parameters in bundled.LAYERS[name]:
        net = getattr(sym, operator)(data=net, name=layer, **parameters)
    weight = sym.Variable("sample_weight")
    return sym.SoftmaxOutput(
        net, sym.Variable("label"), weight, use_sample_weight=True, name="softmax"
    )


def composed_by_creators(name: str) -> Any:
    net = sym.Variable("data")
    for operator, layer, parameters in bundled.LAYERS[name]:
        creator = sym.Operator(operator)
        for key, value in parameters.items():
            creator.set_param(key, value)
        net = creator.set_input("data", net).create_symbol(layer)
    creator = sym.Operator("SoftmaxOutput").set_params({"use_sample_weight": True})
    creator.push_input(net).push_input(sym.Variable("label"))
    return creator.set_input("sample_weight", sym.Variable("sample_weight")).create_symbol(
        "softmax"
    )


@pytest.mark.parametrize("compose", [composed_by_calls, composed_by_creators])
@pytest.mark.parametrize("name", bundled.LAYERS)
def test_X8_calls_and_creators_give_the_yamls_graph(name: str, compose: Any) -> None:
    assert compose(name).graph_hash() == load(find_config(name)).model.symbol.graph_hash()


RESIDUAL_BLOCK = """
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {name: stem, num_filter: 4, kernel: [3, 3], pad: [1, 1]}
    - Convolution: {name: conv, num_filter: 4, kernel: [3, 3], pad: [1, 1], no_bias: true}
    - BatchNorm: {name: bn, fix_gamma: false}
    - Activation: {name: relu, act_type: relu}
    - elemwise_add: {name: add, lhs: relu, rhs: stem}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data: {batch_size: 4, train: {dataset: digits}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""


def test_X8_a_residual_block_is_the_yamls(tmp_path: Path) -> None:
    config = config_file(tmp_path, RESIDUAL_BLOCK, "block.yaml")
    stem = sym.Convolution(x(), num_filter=4, kernel=(3, 3), pad=(1, 1), name="stem")
    block = sym.Convolution(
        stem, num_filter=4, kernel=(3, 3), pad=(1, 1), no_bias=True, name="conv"
    )
    block = sym.BatchNorm(block, fix_gamma=False, name="bn")
    block = sym.Activation(block, act_type="relu", name="relu")
    joined = sym.elemwise_add(block, stem, name="add")(x=sym.Variable("data"))
    fc = sym.FullyConnected(joined, num_hidden=10, name="fc")
    label, weight = sym.Variable("label"), sym.Variable("sample_weight")
    net = sym.SoftmaxOutput(fc, label, weight, use_sample_weight=True, name="softmax")
    assert net.graph_hash() == load(str(config)).model.symbol.graph_hash()


def test_X8_creators_refuse_what_calls_refuse() -> None:
    with pytest.raises(UserError, match="did you mean 'Convolution'"):
        sym.Operator("Convolutoin")
    with pytest.raises(UserError, match="did you mean 'num_hidden'"):
        sym.Operator("FullyConnected").set_param("num_hiden", 3).create_symbol("fc")
    assert sym.Operator("FullyConnected").set_param("num_hidden", 3).create_symbol().is_unapplied


# -- attributes ------------------------------------------------------------------------------------


def test_attributes_of_variables_and_scopes() -> None:
    with sym.AttrScope(ctx_group="first", __mood__="good"), sym.AttrScope(ctx_group="second"):
        variable = sym.Variable(
            "v", shape=(0, 3), dtype="int32", lr_mult=2, wd_mult=0.5, init="zeros", __age__="1"
        )
        fc = sym.FullyConnected(x(), num_hidden=2, name="fc", attr={"__mood__": "bad"})
    assert variable.list_attr() == {
        "__shape__": "(0, 3)",
        "__dtype__": "4",
        "__lr_mult__": "2",
        "lr_mult": "2",
        "__wd_mult__": "0.5",
        "wd_mult": "0.5",
        "__init__": "zeros",
        "__age__": "1",
        "__mood__": "good",
        "__ctx_group__": "second",
        "ctx_group": "second",
    }
    assert fc.attr("__mood__") == "bad"
    assert fc.attr("num_hidden") == "2"
    assert fc.attr("missing") is None
    # A variable that the operator makes has the operator's attributes.
    assert fc.attr_dict()["fc_weight"]["__mood__"] == "bad"
    assert "x" in fc.attr_dict()
    assert sym.load_json(fc.tojson()).attr_dict() == fc.attr_dict()
    assert x().list_attr() == {}


def test_declared_shapes_and_types_take_part_in_inference() -> None:
    weight = sym.Variable("w", shape=(4, 0), dtype="float64")
    fc = sym.FullyConnected(x(), weight, num_hidden=4, no_bias=True, name="fc")
    assert fc.infer_shape(x=(2, 5)) == ([(2, 5), (4, 5)], [(2, 4)], [])
    assert fc.infer_type()[1] == [np.float64]
    with pytest.raises(UserError, match="contradict"):
        sym.FullyConnected(x(), sym.Variable("w", shape=(5, 5)), num_hidden=4).infer_shape(x=(2, 5))


def test_initialisers_with_dumps_are_attributes() -> None:
    class Initialiser:
        def dumps(self) -> str:
            return '["uniform", {"scale": 0.1}]'

    assert sym.Variable("v", init=Initialiser()).attr("__init__") == '["uniform", {"scale": 0.1}]'


# -- inference -------------------------------------------------------------------------------------

KNOWN = [
    {"data": (2, 3, 8, 8)},
    {"data": (0, 3, 8, 8)},
    {"data": (2, 3, 8, 8), "fc_weight": (4, 0)},
]

MXNET = """
import warnings
warnings.filterwarnings("ignore")
import mxnet as mx

def answer(known):
    net = mx.sym.Convolution(mx.sym.Variable("data"), num_filter=2, kernel=(3, 3), name="conv")
    net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="bn"), num_hidden=4, name="fc")
    return net.infer_shape_partial(**{name: tuple(shape) for name, shape in known.items()})
"""


def inferred() -> Any:
    net = sym.Convolution(sym.Variable("data"), num_filter=2, kernel=(3, 3), name="conv")
    return sym.FullyConnected(sym.BatchNorm(net, name="bn"), num_hidden=4, name="fc")


def test_partial_shapes_are_mxnets() -> None:
    for known, theirs in zip(KNOWN, run_in(MXNet, MXNET, KNOWN), strict=True):
        found = inferred().infer_shape_partial(**known)
        assert [list(map(list, each)) for each in found] == theirs


def test_shapes_by_position_and_what_is_unknown() -> None:
    net = inferred()
    assert net.infer_shape((2, 3, 8, 8)) == net.infer_shape(data=(2, 3, 8, 8))
    with pytest.warns(UserWarning, match="unknown: data"):
        assert net.infer_shape() == (None, None, None)
    with pytest.warns(UserWarning, match="types of these arguments are unknown: data"):
        assert net.infer_type() == (None, None, None)
    assert net.infer_type(data="float32")[1] == [np.float32]
    assert net.infer_type(data="float32")[2] == [np.float32] * 2
    assert net.infer_type_partial()[1] == [None]
    # More is known than MXNet finds without any shape.
    assert net.infer_shape_partial()[0][-1] == (4,)
    for call, message in (
        (lambda: net.infer_shape(dat=(2, 3)), "no variable 'dat'"),
        (lambda: net.infer_shape((2, 3), data=(2, 3)), "all by position or all by name"),
        (lambda: net.infer_shape(*[(2,)] * 9), "more values than arguments"),
        (lambda: net.infer_shape(data=(2, 3, 8, 8), fc_weight=(4, 4)), "contradict"),
    ):
        with pytest.raises(UserError, match=message):
            call()


# -- files -----------------------------------------------------------------------------------------


def test_X3_files_keep_the_graph(tmp_path: Path) -> None:
    net, path = inferred(), tmp_path / "net-symbol.json"
    net.save(path)
    assert sym.load(path).graph_hash() == net.graph_hash()
    assert sym.load_json(net.tojson()).list_outputs() == net.list_outputs()
    assert pickle.loads(pickle.dumps(net)).graph_hash() == net.graph_hash()
    assert copy.deepcopy(net) is net
    with pytest.raises(UserError, match="cannot read the symbol"):
        sym.load(tmp_path / "missing.json")


# -- arithmetic ------------------------------------------------------------------------------------

EXPRESSIONS = [
    *("a + 1", "1 + a", "a - b", "2 - a", "a * b", "3 * a", "a / b", "1 / a", "a ** b", "2 ** a"),
    *("a % b", "a % 2", "3 % a", "-a", "abs(a)", "a == b", "a != 1", "a < b", "a <= 2", "a > 1"),
    *("a >= b", "sym.maximum(a, b)", "sym.maximum(2, a)", "sym.minimum(a, 2)", "sym.hypot(a, b)"),
    *("a.sum(axis=1).sqrt()", "a.reshape((0, -1))", "a.transpose((1, 0))", "a.astype('int32')"),
    *("sym.pow(2, a)", "sym.power(a, 2)", "sym.maximum(3, 4)", "sym.pow(a, b)"),
]

MXNET_ARITHMETIC = """
import mxnet as mx
sym = mx.sym

def answer(text):
    with mx.name.NameManager():
        a, b = sym.Variable("a"), sym.Variable("b")
        result = eval(text)
    if not isinstance(result, sym.Symbol):
        return result
    return [[node["op"], node["name"]] for node in json.loads(result.tojson())["nodes"]]
"""


def test_X2_arithmetic_gives_mxnets_operators_and_names() -> None:
    for text, theirs in zip(EXPRESSIONS, run_in(MXNet, MXNET_ARITHMETIC, EXPRESSIONS), strict=True):
        with sym.NameManager():
            result = eval(text, {"a": sym.Variable("a"), "b": sym.Variable("b"), "sym": sym})
        if isinstance(result, sym.Symbol):
            assert [[node.operator, node.name] for node in result.nodes] == theirs, text
        else:
            assert result == theirs


def test_arithmetic_with_other_types_is_refused() -> None:
    with pytest.raises(TypeError):
        x() + "1"
    with pytest.raises(UserError, match="symbols or numbers"):
        sym.maximum(x(), "1")
    assert (x() == None) is False  # noqa: E711
