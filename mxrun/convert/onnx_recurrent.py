"""ONNX translator of RNN: one LSTM, GRU or RNN node for each layer."""

from __future__ import annotations

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.convert.onnx_model import Attribute
from mxrun.convert.onnx_writer import NotInOnnx, OperatorWriter, translates
from mxrun.operator.property import PackedPart

# ONNX's operators, and the positions of its gates among those of the packed vector.
_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn_relu": "RNN", "rnn_tanh": "RNN"}
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_relu": (0,), "rnn_tanh": (0,)}


@translates("RNN")
def rnn(place: OperatorWriter) -> list[str]:
    """Translate the layers, with their weights as slices of the packed vector."""
    p = place.prop.parameters
    if p.projection_size is not None:
        raise NotInOnnx("projection_size")
    if p.is_clipped:
        raise NotInOnnx("lstm_state_clip_min")
    if p.carries:
        raise NotInOnnx("initial_state: carry")
    return _Layers(place).outputs()


@dataclass(frozen=True)
class _Layers:
    place: OperatorWriter

    def outputs(self) -> list[str]:
        """Write all layers; return the output and, with state_outputs, the last states."""
        place, p = self.place, self.place.prop.parameters
        given = dict(zip(place.prop.list_arguments(), place.inputs, strict=True))
        read, lengths = given["data"], given.get("sequence_length", "")
        if p.layout == "NTC":
            read = place.node("Transpose", read, perm=(1, 0, 2))
        lasts: dict[str, list[str]] = {name: [] for name in p.state_names()}
        parts = place.prop.list_packed_parts(place.shapes)[1]
        for layer in range(p.num_layers):
            firsts = [self._rows(given.get(name, ""), layer) for name in lasts]
            weights = self._weights(parts, layer)
            sides, *states = place.split(
                _OPERATORS[p.mode],
                (read, *weights, lengths, *firsts),
                1 + len(lasts),
                **self._attributes(),
            )
            joined = place.node("Transpose", sides, perm=(0, 2, 1, 3))
            read = place.node("Reshape", joined, place.integers((0, 0, -1)))
            for name, state in zip(lasts, states, strict=True):
                lasts[name].append(state)
        if p.layout == "NTC":
            read = place.node("Transpose", read, perm=(1, 0, 2))
        if not p.state_outputs:
            return [read]
        return [read, *(place.node("Concat", *states, axis=0) for states in lasts.values())]

    def _attributes(self) -> dict[str, Attribute]:
        p = self.place.prop.parameters
        found: dict[str, Attribute] = {"hidden_size": p.state_size}
        if p.bidirectional:
            found["direction"] = "bidirectional"
        if p.mode == "gru":
            found["linear_before_reset"] = 1
        if p.mode == "rnn_relu":
            found["activations"] = ("Relu",) * p.directions
        return found

    def _rows(self, state: str, layer: int) -> str:
        """Return the states of one layer; empty for zeros."""
        count = self.place.prop.parameters.directions
        if not state or self.place.prop.parameters.num_layers == 1:
            return state
        return self._slice(state, layer * count, count)

    def _slice(self, value: str, first: int, count: int) -> str:
        place = self.place
        ends = place.integers((first,)), place.integers((first + count,))
        return place.node("Slice", value, *ends, place.integers((0,)))

    def _weights(self, parts: tuple[PackedPart, ...], layer: int) -> tuple[str, str, str]:
        """Return a layer's input weights, recurrent weights and biases, in ONNX's order."""
        place, p = self.place, self.place.prop.parameters
        own: dict[str, list[str]] = {"i2h_weight": [], "h2h_weight": [], "bias": []}
        offset = 0
        for part in parts:
            scope, _, kind = part.name.partition("_")
            size = int(np.prod(part.shape))
            if scope[1:] == str(layer):
                flat = self._slice(place.inputs[1], offset, size)
                gates = (p.gates, p.state_size, *part.shape[1:])
                order = place.array(np.array(_GATES[p.mode], np.int64))
                shaped = place.node("Reshape", flat, place.integers(gates))
                sorted_gates = place.node("Gather", shaped, order, axis=0)
                whole = place.node("Reshape", sorted_gates, place.integers((1, *part.shape)))
                own["bias" if kind.endswith("bias") else kind].append(whole)
            offset += size
        # The biases of a direction stand side by side.
        biases = [
            place.node("Concat", *own["bias"][2 * side : 2 * side + 2], axis=1)
            for side in range(p.directions)
        ]
        found = [own["i2h_weight"], own["h2h_weight"], biases]
        first, second, third = (
            each[0] if len(each) == 1 else place.node("Concat", *each, axis=0) for each in found
        )
        return first, second, third
