"""Binding of MXNet symbols to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx


def bind(symbol: Any, arrays: Mapping[str, Any], gradients: Mapping[str, Any]) -> Any:
    """Return an executor over `arrays` (arguments and auxiliary states) that writes `gradients`.

    Raises ValueError naming the variables without an array.
    """
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    if missing := [name for name in (*arguments, *states) if name not in arrays]:
        raise ValueError(f"no array for {', '.join(missing)}")
    return symbol.bind(
        mx.cpu(),
        {name: arrays[name] for name in arguments},
        args_grad=dict(gradients),
        grad_req={name: "write" if name in gradients else "null" for name in arguments},
        aux_states={name: arrays[name] for name in states},
    )
