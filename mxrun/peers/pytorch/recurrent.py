"""RNN."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mxrun.peers.pytorch.parameters import Modules, MXNetParameters, Operators, Tensor

_KINDS = {"rnn_relu": nn.RNN, "rnn_tanh": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def _module(parameters: MXNetParameters, features: int) -> Any:
    """Return the library's module, without memory for its weights."""
    mode = parameters.text("mode", "")
    options: dict[str, Any] = {"proj_size": 0} if mode == "lstm" else {}
    if parameters.text("projection_size", "None") != "None":
        options["proj_size"] = int(parameters.number("projection_size", 0))
    if mode.startswith("rnn"):
        options["nonlinearity"] = mode.removeprefix("rnn_")
    return _KINDS[mode](
        features,
        int(parameters.number("state_size", 0)),
        int(parameters.number("num_layers", 1)),
        bidirectional=parameters.flag("bidirectional", False),
        dropout=parameters.number("p", 0),
        batch_first=parameters.text("layout", "TNC") == "NTC",
        device="meta",
        **options,
    )


def _in_packed_order(module: Any) -> list[str]:
    """Return the names of the weights, then of the biases, layer by layer."""
    names = [name for names in module._all_weights for name in names]
    return sorted(names, key=lambda name: name.startswith("bias"))


def _weights(module: Any, packed: Tensor) -> dict[str, Tensor]:
    """Return views of the packed vector by the module's names."""
    names = _in_packed_order(module)
    shapes = [getattr(module, name).shape for name in names]
    parts = packed.split([shape.numel() for shape in shapes])
    return {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}


def _first_states(parameters: MXNetParameters, states: list[Tensor]) -> Any:
    """Return the first states as the modules take them; None for zeros."""
    if not states:
        return None
    return (states[0], states[1]) if parameters.text("mode", "") == "lstm" else states[0]


def rnn(
    parameters: MXNetParameters, data: Tensor, packed: Tensor, *others: Tensor
) -> tuple[Tensor, ...]:
    """Return the output, and with state_outputs the last states."""
    module = _module(parameters, data.shape[-1]).train(parameters.is_train)
    states, lengths = list(others), None
    carries = parameters.text("initial_state", "input") == "carry"
    if parameters.flag("use_sequence_length", False):
        lengths = states.pop(0 if carries else -1)
    first, read = _first_states(parameters, states), data
    if lengths is not None:
        read = pack_padded_sequence(
            data, lengths.long(), batch_first=module.batch_first, enforce_sorted=False
        )
    given = (read,) if first is None else (read, first)
    output, last = torch.func.functional_call(module, _weights(module, packed), given)
    if lengths is not None:
        steps = data.shape[1 if module.batch_first else 0]
        output, _ = pad_packed_sequence(output, module.batch_first, total_length=steps)
    if not (carries or parameters.flag("state_outputs", False)):
        return (output,)
    return (output, *(last if isinstance(last, tuple) else (last,)))


class Recurrent(nn.Module):
    """The library's module on zero states, of which only the output is used."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, data: Tensor) -> Tensor:
        output: Tensor = self.module(data)[0]
        return output


def rnn_module(parameters: MXNetParameters, tensors: list[Tensor]) -> Any:
    """Return the module over parts of the packed vector; None unless its states are zeros."""
    used = parameters.flag("use_sequence_length", False) or parameters.flag("state_outputs", False)
    if used or parameters.text("initial_state", "input") != "zeros":
        return None
    gates = {"lstm": 4, "gru": 3}.get(parameters.text("mode", ""), 1)
    rows = gates * int(parameters.number("state_size", 0))
    directions = 2 if parameters.flag("bidirectional", False) else 1
    none = sum(weight.numel() for weight in _module(parameters, 1).parameters())
    module = _module(parameters, (tensors[0].numel() - none) // (rows * directions) + 1)
    for name, part in _weights(module, tensors[0]).items():
        setattr(module, name, nn.Parameter(part.detach()))
    return Recurrent(module)


OPERATORS: Operators = {"RNN": rnn}
MODULES: Modules = {"RNN": rnn_module}
