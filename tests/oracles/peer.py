"""Peers: MXNet and PyTorch running the same symbol, each in a helper process.

The interpreters are named by environment variables, because the peers need environments of their
own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from mxrun.base.errors import UserError
from mxrun.base.tensor import PartialShape
from mxrun.peers.process import HelperProcess, worker_command
from mxrun.peers.wire import Array, group, numbered, prefixed
from oracles.sgd import SGD
from oracles.symbols import SavedSymbol, Shapes, operator_symbol

# Threads of a helper process.
_THREADS = "2"


@dataclass(frozen=True)
class PeerResults:
    """Results of one run of a symbol: outputs in order, gradients and auxiliary states by name."""

    outputs: tuple[Array, ...]
    gradients: Mapping[str, Array]
    auxiliary: Mapping[str, Array]


class Peer(HelperProcess):
    """Library that runs MXNet symbols, in a helper process.

    Every method raises UserError with the peer's message if it rejects the request, and
    InternalError if its process fails.
    """

    module: ClassVar[str]
    variable: ClassVar[str]

    @classmethod
    def interpreter(cls) -> str | None:
        """Return the Python that has the peer installed, or None."""
        return os.environ.get(cls.variable)

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why this peer cannot be used here, or None if it can."""
        interpreter = cls.interpreter()
        if interpreter is None:
            return f"{cls.variable} does not name a Python that has {cls.__name__}"
        if shutil.which(interpreter) is None:
            return f"{cls.variable} names {interpreter}, which is not an executable"
        return None

    def __init__(self) -> None:
        interpreter, reason = self.interpreter(), self.unavailable()
        if interpreter is None or reason is not None:
            raise UserError(reason or f"there is no interpreter for {type(self).__name__}")
        environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), _THREADS)
        command = worker_command(interpreter, Path(__file__).with_name(self.module))
        super().__init__(type(self).__name__, command, environment)

    def version(self) -> str:
        """Return the peer's version."""
        return str(self.request("version", {}, {}).fields["version"])

    def operators(self) -> set[str]:
        """Return the names of the operators the peer supports."""
        return set(self.request("operators", {}, {}).fields["operators"])

    def run_symbol(
        self,
        symbol: str,
        inputs: Mapping[str, Array],
        out_gradients: Sequence[Array] = (),
        *,
        is_train: bool = True,
        gradients: bool = True,
    ) -> PeerResults:
        """Run symbol JSON on arrays for all its arguments and auxiliary states.

        Gradients are those of all floating arguments, with `out_gradients` (default: ones) for the
        outputs.
        """
        reply = self.request(
            "run_symbol",
            {"symbol": symbol, "is_train": is_train, "gradients": gradients},
            {
                **prefixed("inputs", inputs),
                **prefixed("out_gradients", numbered(list(out_gradients))),
            },
        )
        return PeerResults(
            tuple(group(reply.arrays, "outputs").values()),
            group(reply.arrays, "gradients"),
            group(reply.arrays, "auxiliary"),
        )

    def run_operator(
        self,
        operator: str,
        parameters: Mapping[str, str],
        inputs: Mapping[str, Array],
        out_gradients: Sequence[Array] = (),
        *,
        is_train: bool = True,
        gradients: bool = True,
    ) -> PeerResults:
        """Run one operator, with MXNet's name and parameter strings, on inputs in its order.

        The number of outputs is that of `out_gradients`, but at least one.
        """
        return self.run_symbol(
            operator_symbol(operator, parameters, list(inputs), max(1, len(out_gradients))),
            inputs,
            out_gradients,
            is_train=is_train,
            gradients=gradients,
        )

    def train(
        self,
        symbol: str,
        parameters: Mapping[str, Array],
        batches: Mapping[str, Array],
        sgd: SGD,
    ) -> Mapping[str, Array]:
        """Train one step per batch and return the parameters; batches are stacked on a first axis.

        `parameters` includes the auxiliary states, which are returned with their values after
        training.
        """
        reply = self.request(
            "train",
            {"symbol": symbol, "sgd": vars(sgd), "steps": len(next(iter(batches.values())))},
            {**prefixed("parameters", parameters), **prefixed("batches", batches)},
        )
        return group(reply.arrays, "parameters")


class PyTorch(Peer):
    """PyTorch in the interpreter that MXRUN_TORCH_PYTHON names, else in this one if installed."""

    module = "pytorch_oracle.py"
    variable = "MXRUN_TORCH_PYTHON"

    @classmethod
    def interpreter(cls) -> str | None:
        """Return the named Python, else this one if it has PyTorch."""
        named = super().interpreter()
        if named is None and importlib.util.find_spec("torch") is not None:
            return sys.executable
        return named


class MXNet(Peer):
    """MXNet 1.9.1 in MXRUN_MXNET_PYTHON's environment (it requires NumPy below 1.24)."""

    module = "mxnet_oracle.py"
    variable = "MXRUN_MXNET_PYTHON"

    def infer_shape(self, symbol: str, known: Mapping[str, PartialShape]) -> Shapes:
        """Return the shapes that MXNet infers from the known ones."""
        sent = {n: [size or 0 for size in shape] for n, shape in known.items() if shape is not None}
        fields = self.request("infer_shape", {"symbol": symbol, "known": sent}, {}).fields
        return Shapes(
            {name: _partial(shape) for name, shape in fields["arguments"].items()},
            tuple(_partial(shape) for shape in fields["outputs"]),
            {name: _partial(shape) for name, shape in fields["auxiliary"].items()},
        )

    def evaluate(
        self, expressions: Sequence[str], operands: Mapping[str, Array]
    ) -> tuple[Array, ...]:
        """Return the values of Python expressions on `nd` arrays."""
        fields, arrays = {"expressions": list(expressions)}, prefixed("operands", operands)
        reply = self.request("evaluate", fields, arrays)
        return tuple(group(reply.arrays, "values").values())

    def positions(self, functions: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the arguments of those functions of `mx.nd` that exist, in order."""
        reply = self.request("positions", {"functions": list(functions)}, {})
        found: Mapping[str, Sequence[str]] = reply.fields["positions"]
        return found

    def save_json(self, symbol: str) -> SavedSymbol:
        """Load symbol JSON and save it again."""
        reply = self.request("save_json", {"symbol": symbol}, {})
        fields = reply.fields
        return SavedSymbol(
            fields["symbol"],
            tuple(fields["arguments"]),
            tuple(fields["outputs"]),
            tuple(fields["auxiliary"]),
        )


def _partial(shape: Sequence[int]) -> PartialShape:
    """Convert MXNet's partial shape, with () and 0 for unknown, to mxrun's with None."""
    return tuple(size or None for size in shape) or None
