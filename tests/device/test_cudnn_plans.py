"""Descriptors and execution plans by cuDNN itself, without a card."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cudnn import card_description, needs_cudnn

from mxrun.base import cache_files, disk_cache
from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.config.bundled import find_config
from mxrun.device.cuda.cudnn import plan as plans
from mxrun.device.cuda.cudnn.constants import Attribute, DataType, DescriptorKind, NumericalNote
from mxrun.device.cuda.cudnn.descriptor import Descriptor, describe
from mxrun.device.cuda.cudnn.graph import (
    ConvolutionDirection,
    ConvolutionOperation,
    GraphTensor,
    MatrixMultiplication,
    OperationGraph,
    Role,
)
from mxrun.device.cuda.cudnn.launch import execute, variant_pack
from mxrun.device.cuda.cudnn.plan import adopting, digest_of, loaded, plan_of, refused_notes
from mxrun.device.cuda.device import CudaDevice
from mxrun.device.cuda.recorded_cards import recorded_card, recorded_cards
from mxrun.executor.library_plans import library_plans
from mxrun.operator.constraints import ImplementationConstraints, Unsupported
from mxrun.preparation.planning import load, request_for

ADDRESSES = {Role.FIRST: 4096, Role.SECOND: 8192, Role.OUTPUT: 12288}


def card(name: str = "h100") -> str:
    return recorded_card(name).properties


def convolution(dtype: str, batch: int = 16, channels: int = 32) -> OperationGraph:
    layout = CHANNELS_LAST if dtype == "bfloat16" else PLAIN
    specs = {
        Role.FIRST: TensorSpec((batch, channels, 14, 14), dtype, layout),
        Role.SECOND: TensorSpec((48, channels, 3, 3), dtype, layout),
        Role.OUTPUT: TensorSpec((batch, 48, 14, 14), dtype, layout),
    }
    images, weight, windows = (GraphTensor.of(role, spec) for role, spec in specs.items())
    ones = (1, 1)
    operation = ConvolutionOperation(
        ConvolutionDirection.WINDOWS, images, weight, windows, ones, ones, ones
    )
    return OperationGraph((operation,))


def product(dtype: str, sizes: tuple[int, int, int] = (64, 48, 32)) -> OperationGraph:
    rows, columns, inner = sizes
    shapes = {
        Role.FIRST: (3, rows, inner),
        Role.SECOND: (3, inner, columns),
        Role.OUTPUT: (3, rows, columns),
    }
    left, right, output = (
        GraphTensor.of(role, TensorSpec((*shape, 1), dtype)) for role, shape in shapes.items()
    )
    tensors = (
        replace(each, sizes=each.sizes[:3], strides=each.strides[:3])
        for each in (left, right, output)
    )
    return OperationGraph((MatrixMultiplication(*tensors),))


@needs_cudnn
def test_a_descriptor_has_the_attributes_that_it_was_given() -> None:
    spec = TensorSpec((2, 3, 5, 7), "bfloat16", CHANNELS_LAST)
    tensor = GraphTensor.of(Role.SECOND, spec).descriptor()
    assert tensor.numbers(Attribute.TENSOR_DIMENSIONS, 4) == [2, 3, 5, 7]
    assert tensor.numbers(Attribute.TENSOR_STRIDES, 4) == [105, 1, 21, 3]
    assert tensor.numbers(Attribute.TENSOR_DATA_TYPE) == [DataType.BFLOAT16]
    assert tensor.numbers(Attribute.TENSOR_UNIQUE_ID) == [2]
    assert tensor.numbers(Attribute.TENSOR_IS_VIRTUAL) == [False]


@needs_cudnn
def test_one_spatial_axis_is_the_row_of_a_plane() -> None:
    spec = TensorSpec((2, 3, 7), "float32")
    tensor = GraphTensor.of(Role.FIRST, spec)
    assert (tensor.sizes, tensor.strides) == ((2, 3, 1, 7), (21, 7, 7, 1))


@needs_cudnn
def test_an_incomplete_descriptor_names_its_kind() -> None:
    with pytest.raises(InternalError, match="cuDNN's TENSOR, finalise: CUDNN_STATUS_BAD_PARAM"):
        describe(DescriptorKind.TENSOR, {Attribute.TENSOR_UNIQUE_ID: 1})


@needs_cudnn
def test_a_wrong_attribute_is_named() -> None:
    tensor = Descriptor(DescriptorKind.TENSOR)
    with pytest.raises(InternalError, match="TENSOR, CONVOLUTION_SPATIAL_DIMS = 2: CUDNN_STATUS_"):
        tensor.set(Attribute.CONVOLUTION_SPATIAL_DIMS, 2)


@pytest.mark.parametrize("name", ["a100", "b200", "h100"])
@needs_cudnn
def test_recorded_cards_are_complete(name: str) -> None:
    properties = plans.properties(card(name))
    found = json.loads(properties.text(Attribute.DEVICEPROP_JSON_REPRESENTATION).rstrip(b"\0"))
    assert found == json.loads(card(name))


def test_an_unknown_card_is_named() -> None:
    with pytest.raises(UserError) as raised:
        recorded_card("h1000")
    assert "'h1000'" in str(raised.value)
    assert "one of a100, b200, h100" in str(raised.value)
    assert recorded_cards() == ["a100", "b200", "h100"]


@needs_cudnn
@pytest.mark.parametrize("name", ["a100", "b200", "h100"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_convolution_has_a_plan(dtype: str, name: str) -> None:
    plan = plan_of(convolution(dtype), card(name))
    text = json.loads(plan.text)
    assert text["GPUProfile"] == json.loads(card(name))
    assert plan.engine.startswith(f"engine{text['engine']['engineId']}.")
    (workspace,) = loaded(plan, 0).numbers(Attribute.EXECUTION_PLAN_WORKSPACE_SIZE)
    assert workspace == plan.workspace_bytes
    # Cards of one model share the text, but nothing that a call may change.
    assert loaded(plan, 0) is loaded(plan, 0) is not loaded(plan, 1)


@needs_cudnn
def test_float32_is_not_rounded_for_tensor_cores() -> None:
    """Of the engines for a convolution some are exact; those for stacks of matrices all round."""
    graph = convolution("float32")
    assert NumericalNote.TENSOR_CORE in refused_notes(graph)
    assert NumericalNote.TENSOR_CORE not in refused_notes(replace(graph, is_tf32=True))
    exact, rounded = (
        {name for name, _ in plans._engines(each, card())}
        for each in (graph, replace(graph, is_tf32=True))
    )
    assert exact < rounded
    with pytest.raises(Unsupported, match="no engine that may be taken"):
        plan_of(product("float32"), card())
    assert plan_of(replace(product("float32"), is_tf32=True), card()).engine


@needs_cudnn
def test_no_engine_gives_other_bits_in_another_run() -> None:
    graphs = (convolution("float32"), convolution("bfloat16"), product("bfloat16"))
    assert all(NumericalNote.NONDETERMINISTIC in refused_notes(graph) for graph in graphs)
    notes = [
        engine.descriptors(Attribute.ENGINECFG_ENGINE, DescriptorKind.ENGINE, 1)[0].numbers(
            Attribute.ENGINE_NUMERICAL_NOTE, 16
        )
        for graph in graphs
        for _, engine in plans._engines(graph, card())
    ]
    assert len(notes) > 50
    assert not any(NumericalNote.NONDETERMINISTIC in each for each in notes)


@needs_cudnn
def test_P17_P18_constraints_select_the_engine() -> None:
    graph = convolution("float32", batch=64)
    names = plan_of(graph, card()).alternatives()
    assert len(names) == len(set(names)) > 2
    assert plan_of(graph, card(), ImplementationConstraints(names[1])).engine == names[1]
    limited = plan_of(graph, card(), ImplementationConstraints(scratch_bytes=0))
    assert limited.workspace_bytes == 0
    with pytest.raises(Unsupported):
        plan_of(graph, card(), ImplementationConstraints("engine999.1"))


@needs_cudnn
def test_a_damaged_file_of_the_cache_is_planned_again() -> None:
    graph = product("bfloat16", (40, 24, 16))
    made = plan_of(graph, card())
    folder = cache_files.root()
    assert folder is not None
    (path,) = (each for each in (folder / plans.CACHE).iterdir() if repr(graph) in each.read_text())
    whole = path.read_text()
    key = "\n".join(json.loads(whole)["of"])
    assert plans._recorded(graph, card(), key, disk_cache.get(plans.CACHE, key)) == made
    for damaged in (
        whole.replace(f'"engine": "{made.engine}"', '"engine": "engine0.1"'),
        whole.replace('"workspace_bytes": ', '"workspace_bytes": 1'),
        whole.replace("CUDNN_DATA_BFLOAT16", "CUDNN_DATA_FLOAT"),
        whole[: len(whole) // 2],
    ):
        assert damaged != whole
        path.write_text(damaged)
        assert plans._recorded(graph, card(), key, disk_cache.get(plans.CACHE, key)) is None
    # The code of a compiled engine is not the same text again, but the engine is.
    again = plans._made(graph, card(), ImplementationConstraints())
    assert (again.engine, again.workspace_bytes) == (made.engine, made.workspace_bytes)


@needs_cudnn
def test_F5_a_run_that_adopts_plans_has_their_text() -> None:
    """cuDNN's choice, and the code of a compiled engine, may be others in another process."""
    graph = product("bfloat16", (40, 56, 16))
    own = plan_of(graph, card())
    other = plan_of(graph, card(), ImplementationConstraints(own.alternatives()[1]))
    first = replace(other, key=own.key)
    records = {digest_of(own.key): json.dumps(first.record)}
    with adopting(records):
        assert plan_of(graph, card()) == first
        assert plan_of(product("bfloat16", (40, 64, 16)), card()).engine
    assert plan_of(graph, card()) == own != first
    # A record that is not whole is none.
    for damaged in ("{", "[]", json.dumps({**first.record, "engine": "engine0.1"})):
        with adopting({digest_of(first.key): damaged}):
            assert plan_of(graph, card()) == own


@needs_cudnn
def test_F5_the_plans_of_a_network_are_those_of_its_launches() -> None:
    built = load(find_config("digits_lenet"), ["precision=bfloat16"])
    request = replace(request_for(built, training=True), device=card_description("h100"))
    plan = compile_plan(built.model.symbol, request)
    device = CudaDevice(plan.device)
    records = library_plans(plan, device)
    assert len(records) > 4
    assert records == library_plans(plan, device)
    with adopting(records):
        again = compile_plan(built.model.symbol, request)
    assert library_plans(again, device) == records


@needs_cudnn
def test_a_plan_without_code_is_the_same_text_again() -> None:
    graph = convolution("float32")
    made = plans._made(graph, card(), ImplementationConstraints())
    assert made == plans._made(graph, card(), ImplementationConstraints())
    assert len(made.text) < 3000


@needs_cudnn
def test_addresses_are_packed_and_only_a_card_runs_a_plan() -> None:
    plan = plan_of(convolution("bfloat16"), card())
    pack = variant_pack(ADDRESSES, 65536)
    assert pack.references == []
    with pytest.raises(InternalError, match="cudnnBackendExecute returned CUDNN_STATUS_BAD_PARAM"):
        execute(loaded(plan, 0), pack, 0)
