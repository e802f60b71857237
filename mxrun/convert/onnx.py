"""Export of a network's inference graph, with its parameters, as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.convert import (
    onnx_attention,
    onnx_functions,
    onnx_layers,
    onnx_positions,
    onnx_recurrent,
    onnx_sequences,
)
from mxrun.convert.onnx_model import Array, OnnxModel, OnnxNode, ValueInfo
from mxrun.convert.onnx_writer import TRANSLATORS, NotInOnnx, OperatorWriter, Writer
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.node import Node, NodeEntry, topological

# Importing these modules registers their translators.
FAMILIES = (
    onnx_attention,
    onnx_functions,
    onnx_layers,
    onnx_positions,
    onnx_recurrent,
    onnx_sequences,
)
# Symbolic name of the batch size.
_BATCH = "batch"


def to_onnx(
    name: str,
    heads: Sequence[NodeEntry],
    inputs: Mapping[str, TensorSpec],
    arrays: Mapping[str, Array],
    any_batch: bool,
) -> OnnxModel:
    """Return the model that computes `heads` from `inputs`; its other variables are constants.

    Labels are left out: losses return their inference outputs. any_batch: the first axis of the
    inputs may have any size. Raises UserError listing every operator that cannot be converted.
    """
    return _Conversion(heads, inputs, arrays, any_batch).model(name)


class _Conversion:
    def __init__(
        self,
        heads: Sequence[NodeEntry],
        inputs: Mapping[str, TensorSpec],
        arrays: Mapping[str, Array],
        any_batch: bool,
    ) -> None:
        self.heads, self.inputs, self.arrays = heads, inputs, arrays
        self.inference = self._inferred(0)
        self.other = self._inferred(1) if any_batch else self.inference
        self.writer = Writer()
        self.names: dict[NodeEntry, str] = {}

    def _inferred(self, more: int) -> InferredSpecs:
        """Infer all shapes for a batch larger by `more`."""
        shapes: dict[str, Shape] = {n: array.shape for n, array in self.arrays.items()}
        for name, spec in self.inputs.items():
            shapes[name] = (spec.shape[0] + more, *spec.shape[1:])
        inference = infer(self.heads, shapes)
        if inference.diagnostics and more:
            hint = "the network works for one batch size only: give --batch"
            raise UserError(Diagnostic("the batch size cannot be variable", hint=hint))
        return inference

    def model(self, name: str) -> OnnxModel:
        """Write all nodes in topological order."""
        problems, inputs = [], []
        for node in _needed(self.heads):
            entry = NodeEntry(node)
            if not node.is_variable:
                try:
                    self._write(node)
                except NotInOnnx as reason:
                    problems.append(_unwritable(node, str(reason)))
                    # Placeholder outputs: the consumers of this node are not reported as well.
                    self.names |= {NodeEntry(node, i): "" for i in range(node.num_outputs)}
            elif node.name in self.inputs:
                self.names[entry] = node.name
                inputs.append(self._value(entry, node.name))
            else:
                self.names[entry] = self.writer.constant(node.name, self.arrays[node.name])
        if problems:
            raise UserError(problems)
        outputs = []
        for head in self.heads:
            named = OnnxNode(
                "Identity", f"{head.name}/result", (self.names[head],), (head.name,), {}
            )
            self.writer.nodes.append(named)
            outputs.append(self._value(head, head.name))
        nodes = _live(self.writer.nodes, {value.name for value in outputs})
        read = {value for node in nodes for value in node.inputs}
        constants = {n: array for n, array in self.writer.constants.items() if n in read}
        # Inputs that affect no output are left out, such as the sample weights of losses.
        used = [value for value in inputs if value.name in read]
        return OnnxModel(name, nodes, constants, used, outputs)

    def _write(self, node: Node) -> None:
        """Write one operator; raises NotInOnnx."""
        assert node.prop is not None
        if node.operator not in TRANSLATORS:
            raise NotInOnnx("")
        sources = _read(node)
        if any(source not in self.names for source in sources):
            raise NotInOnnx("it reads an output that inference does not have")
        results = [NodeEntry(node, index) for index in range(node.num_outputs)]
        place = OperatorWriter(
            writer=self.writer,
            name=node.name,
            prop=node.prop,
            inputs=[self.names[source] for source in sources],
            shapes=[self._shape(source) for source in sources],
            output_shapes=[self._shape(result) for result in results],
            free_shapes=[self._free(source) for source in sources],
            free_output_shapes=[self._free(result) for result in results],
        )
        outputs = TRANSLATORS.get(node.operator)(place)
        for index, name in enumerate([outputs] if isinstance(outputs, str) else outputs):
            self.names[results[index]] = name

    def _shape(self, entry: NodeEntry) -> Shape:
        return self.inference.spec(entry).shape

    def _free(self, entry: NodeEntry) -> Shape:
        """Return the shape with -1 for each size that depends on the batch size."""
        other = self.other.spec(entry).shape
        return tuple(
            size if size == again else -1
            for size, again in zip(self._shape(entry), other, strict=True)
        )

    def _value(self, entry: NodeEntry, name: str) -> ValueInfo:
        sizes = [_BATCH if size == -1 else size for size in self._free(entry)]
        return ValueInfo(name, self.inference.spec(entry).dtype, sizes)


def _read(node: Node) -> tuple[NodeEntry, ...]:
    """Return the inputs of a node in inference: all but a loss's labels."""
    assert node.prop is not None
    names = (*node.prop.list_arguments(), *node.prop.list_auxiliary_states())
    if node.prop.loss_output in (None, 0):
        return node.inputs
    pairs = zip(names, node.inputs, strict=True)
    return tuple(entry for name, entry in pairs if name not in node.prop.label_arguments)


def _needed(heads: Sequence[NodeEntry]) -> list[Node]:
    """Return the nodes that the heads depend on in inference, in topological order."""
    needed: set[Node] = set()
    open_nodes = [head.node for head in heads]
    while open_nodes:
        node = open_nodes.pop()
        if node in needed:
            continue
        needed.add(node)
        if not node.is_variable:
            open_nodes += (entry.node for entry in _read(node))
    return [node for node in topological(heads) if node in needed]


def _live(nodes: Sequence[OnnxNode], outputs: set[str]) -> list[OnnxNode]:
    """Remove nodes that no output depends on (dead-code elimination)."""
    needed, live = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            live.append(node)
    return live[::-1]


def _unwritable(node: Node, reason: str) -> Diagnostic:
    return Diagnostic(
        f"{node.operator} {node.name!r} cannot be converted to ONNX",
        place=node.place,
        got=reason,
    )
