"""Equivalence of the work of all runners of a comparison, checked by their first results.

The first losses of all runners (in inference: outputs) are compared before any is timed. Dropout is
disabled for the check, because each runner has its own random generator. In inference the inputs of
the losses are compared: the probabilities of an untrained network, without moving statistics, may
be nothing but 0 and 1.

Updates at a high rate amplify rounding until the losses of equal work differ. Therefore mxrun first
repeats the steps from slightly truncated parameters. If that shows in the losses, all runners are
compared at a lower rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.device import GPU
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, MxrunError, UserError
from mxrun.frontend import ModelDefinition
from mxrun.graph.infer import infer
from mxrun.graph.node import Node
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, load_json
from mxrun.inference.onnx_export import onnx_model
from mxrun.inspection.benchmark_loop import Steps
from mxrun.operator.property import Precision, ResourceKind
from mxrun.operator.register import create
from mxrun.peers.baseline import BaselineProcess, Comparison
from mxrun.peers.exported import peer_symbol, without_dropout
from mxrun.preparation.parameter_init import initial_array
from mxrun.preparation.planning import plan_for


@dataclass(frozen=True)
class Tolerance:
    """Largest permitted differences: relative for losses, as a fraction of the largest for outputs.

    first, later: for the first loss, and for losses after updates. truncated_bits: number of
    mantissa bits of the parameters that are truncated to measure the effect of rounding; about the
    rounding of a network.
    """

    first: float
    later: float
    output: float
    truncated_bits: int


TOLERANCES: Mapping[str, Tolerance] = {
    FLOAT32: Tolerance(1e-4, 1e-2, 1e-4, truncated_bits=6),
    # Measured for ResNet-50: 0.011, 0.019 and 0.007.
    BFLOAT16: Tolerance(2e-2, 5e-2, 5e-2, truncated_bits=16),
}
_STEPS = 3
# Largest permitted effect of the truncation on later losses: a fraction of the tolerance, because
# other runners round elsewhere and more often, or a multiple of the effect on the first loss. Then
# the number of lower rates to try, and the factor between them.
_MAX_SPREAD, _MAX_MULTIPLE = 0.1, 2.0
_LOWER_RATES, _RATE_FACTOR = 4, 0.1
_AXES = 2

Array = npt.NDArray[Any]


class NotEquivalent(MxrunError):
    """Error for a runner with different results, whose time would be meaningless."""


@dataclass(frozen=True, eq=False)
class ReferenceOutputs:
    """Work to time and to check, the initial state of all runners, and mxrun's first results.

    checked: the work to check, possibly at a lower rate than `timed`. variables, batches: initial
    state of all runners. losses: of the first training steps; outputs: of the first inference
    steps. on_images: whether windows move over two axes, so that the order of axes in memory
    matters.
    """

    timed: Comparison
    timed_network: ModelDefinition
    checked: Comparison
    checked_network: ModelDefinition
    variables: Mapping[str, Array]
    batches: Mapping[str, Array]
    losses: tuple[float, ...]
    outputs: tuple[list[Array], ...]
    on_images: bool

    @classmethod
    def of(cls, built: ModelDefinition, steps: Steps) -> ReferenceOutputs:
        """Run mxrun's first steps from its initial parameters.

        Raises UserError for training that baselines do not support.
        """
        timed, training = _comparison(built, steps), steps.phase == TRAIN
        network = _without_dropout(built) if training else _before_losses(built)
        checked = replace(timed, symbol=peer_symbol(network.model.symbol.tojson()))
        steps.restart()
        batches = steps.first_batches()
        # Equal to mxrun's before its first step, and complete: its plan may not read all of them.
        variables = {name: initial_array(name, built) for name in built.model.learned}
        variables |= {
            name: np.zeros(spec.shape, "float32") for name, spec in built.model.carried.items()
        }
        reference = steps
        if checked.symbol != timed.symbol:
            reference = Steps(network, plan_for(network, training, timed.threads), steps.phase)
        count = min(_STEPS, len(next(iter(batches.values()))))
        losses: tuple[float, ...] = ()
        outputs: tuple[list[Array], ...] = ()
        if training:
            losses, rate = _first_losses(network, reference, count)
            checked = replace(checked, rate=rate)
        else:
            outputs = tuple(reference.outputs(count))
        images = any(_moves_over_images(node) for node in built.model.symbol.nodes)
        return cls(timed, built, checked, network, variables, batches, losses, outputs, images)

    @property
    def differ(self) -> bool:
        """True if the timed work differs from the checked work."""
        return self.checked != self.timed

    @property
    def precision(self) -> str:
        """Precision of all runners."""
        return self.timed_network.options.precision

    @property
    def tolerance(self) -> Tolerance:
        """Largest permitted differences in this precision."""
        return TOLERANCES[self.precision]

    def initial_state(self, reads: str, network: ModelDefinition) -> Mapping[str, Array]:
        """Return a baseline's initial state: the variables, or an ONNX model that contains them.

        Raises UserError for a network without an ONNX form.
        """
        if reads == "symbol":
            return self.variables
        outputs = network.model.symbol.heads
        model = onnx_model(network, outputs, self.variables, any_batch=False).encoded()
        return {"model": np.frombuffer(model, np.uint8)}

    def difference(self, baseline: BaselineProcess, mode: str) -> float:
        """Return the relative difference of a baseline's first results from mxrun's.

        Raises NotEquivalent if it exceeds the tolerance of rounding.
        """
        if self.losses:
            losses = baseline.losses(len(self.losses))
            return self._loss_difference(losses, f"{baseline.name} ({mode})")
        largest, allowed = 0.0, self.tolerance.output
        for step, results in enumerate(baseline.outputs(len(self.outputs))):
            for expected, got in zip(self.outputs[step], results, strict=True):
                error = float(np.abs(got.reshape(expected.shape) - expected).max())
                error /= max(float(np.abs(expected).max()), 1e-30)
                # Written so that a NaN fails the check.
                if not error <= allowed:
                    raise NotEquivalent(
                        f"{baseline.name} ({mode}) is not equivalent: outputs of step {step + 1} "
                        f"differ by {error:.2g} of the largest, {allowed:g} is allowed"
                    )
                largest = max(largest, error)
        return largest

    def _loss_difference(self, losses: list[float], name: str) -> float:
        expected = np.array(self.losses)
        difference, allowed = _relative_difference(losses, expected), self.tolerance
        if not (difference[0] <= allowed.first and (difference[1:] <= allowed.later).all()):
            raise NotEquivalent(
                f"{name} is not equivalent: its first losses are {_losses_text(losses)}, mxrun's "
                f"{_losses_text(self.losses)}; for rounding {allowed.first:g} of the first is "
                f"allowed and {allowed.later:g} of those after updates"
            )
        return float(difference.max())


def _relative_difference(losses: Sequence[float], expected: Sequence[float] | Array) -> Array:
    """Return the relative differences of losses."""
    difference: Array = np.abs(np.array(losses) - expected) / np.maximum(np.abs(expected), 1e-6)
    return difference


def _first_losses(
    network: ModelDefinition, steps: Steps, count: int
) -> tuple[tuple[float, ...], float]:
    """Return the losses of the first steps at a rate that does not amplify rounding, and the rate.

    Raises UserError for losses that are not finite at the config's own rate.
    """
    rate, tolerance = network.training.optimizer.lr, TOLERANCES[network.options.precision]
    losses = tuple(steps.losses(count))
    if not np.isfinite(losses).all():
        problem = "the losses of the first steps are not finite: they cannot be compared"
        hint = "lower the rate, lr, of train.optimizer"
        raise UserError(Diagnostic(problem, got=_losses_text(losses), hint=hint))
    for _ in range(_LOWER_RATES):
        spread = _relative_difference(
            _losses_after_truncation(steps, tolerance.truncated_bits, network, count), losses
        )
        if (spread[1:] <= max(_MAX_SPREAD * tolerance.later, _MAX_MULTIPLE * spread[0])).all():
            break
        rate *= _RATE_FACTOR
        steps = Steps(_at_rate(network, rate), steps.executor.plan, TRAIN)
        losses = tuple(steps.losses(count))
    return losses, rate


def _losses_after_truncation(
    steps: Steps, bits: int, network: ModelDefinition, count: int
) -> list[float]:
    """Return the losses of the first steps from parameters with truncated mantissas."""
    steps.restart()
    mask = np.uint32(2**32 - 2**bits)
    for name in network.training.rules:
        tensor = steps.executor.tensor(name)
        tensor.write((tensor.values().view(np.uint32) & mask).view(np.float32))
    return steps.losses(count)


def _at_rate(network: ModelDefinition, rate: float) -> ModelDefinition:
    """Return the same network with another learning rate."""
    training = network.training
    optimizer = training.optimizer.model_copy(update={"lr": rate})
    return replace(network, training=replace(training, optimizer=optimizer))


def _moves_over_images(node: Node) -> bool:
    """Return whether the node has windows of two axes."""
    return node.prop is not None and len(getattr(node.prop.parameters, "kernel", ())) == _AXES


def _losses_text(losses: Sequence[float]) -> str:
    return ", ".join(f"{loss:.6g}" for loss in losses)


def _comparison(built: ModelDefinition, steps: Steps) -> Comparison:
    """Return the symbol and its updates in the form that baselines receive.

    Raises UserError for networks and training that they do not support.
    """
    model, training = built.model, built.training
    symbol, threads = peer_symbol(model.symbol.tojson()), steps.executor.plan.device.host_threads
    kind, index = built.options.device
    device = f"cuda:{index}" if kind == GPU else "cpu"
    if problems := _mixed(built):
        raise UserError(problems)
    if steps.phase != TRAIN:
        return Comparison(symbol, "infer", threads=threads, device=device)
    problems = [
        Diagnostic(f"training with {feature} cannot be compared with peers", hint=hint)
        for feature, is_used, hint in (
            ("accumulated gradients", training.accumulate > 1, "train.accumulate=1"),
            ("averaged weights", training.average is not None, "leave train.average out"),
        )
        if is_used
    ]
    problems += [
        Diagnostic(f"{name!r} draws random numbers: its losses cannot be compared with peers'")
        for name in _random_nodes(built)
    ]
    if problems:
        raise UserError(problems)
    updates = {
        name: {
            "operator": rule.operator,
            "parameters": {**rule.parameters, "rescale_grad": built.full_scale},
            "states": len(create(rule.operator, rule.parameters).list_outputs()) - 1,
        }
        for name, rule in training.rules.items()
    }
    max_norm = None if training.clipping is None else training.clipping.max_norm
    rate = training.optimizer.lr
    return Comparison(symbol, "train", updates, rate, threads, max_norm, device)


def _mixed(built: ModelDefinition) -> list[Diagnostic]:
    """Return diagnostics for layers with a precision other than the network's."""
    precision = built.options.precision
    return [
        Diagnostic(
            f"{node.name!r} has a precision of its own: it cannot be compared with peers",
            node.place,
            expected=precision,
            got=str(node.options.precision),
        )
        for node in built.model.symbol.nodes
        if node.prop is not None
        and node.options.precision not in (None, precision)
        and node.prop.precision is not Precision.FLOAT32
    ]


def _random_nodes(built: ModelDefinition) -> list[str]:
    """Return the names of nodes other than Dropout that draw random numbers."""
    found = []
    for node in built.model.symbol.nodes:
        if node.prop is None or node.operator == "Dropout":
            continue
        inputs = [built.model.inference.spec(entry) for entry in node.argument_entries()]
        requests = node.prop.forward_resource(inputs)
        if any(request.kind is ResourceKind.RANDOM for request in requests):
            found.append(node.name)
    return found


def _without_dropout(built: ModelDefinition) -> ModelDefinition:
    """Return the same network with all Dropout disabled."""
    return _with_symbol(built, load_json(without_dropout(built.model.symbol.tojson())))


def _before_losses(built: ModelDefinition) -> ModelDefinition:
    """Return the same network with the inputs of its losses as outputs."""
    heads = [
        head
        if head.node.prop is None or head.node.prop.loss_output is None
        else head.node.inputs[head.node.prop.list_arguments().index("data")]
        for head in built.model.symbol.heads
    ]
    changed = _with_symbol(built, Symbol(heads))
    return replace(changed, model=replace(changed.model, losses=()))


def _with_symbol(built: ModelDefinition, symbol: Symbol) -> ModelDefinition:
    """Return another network with the same variables."""
    model = built.model
    shapes = {name: spec.shape for name, spec in (*model.inputs.items(), *model.learned.items())}
    changed = replace(model, symbol=symbol, inference=infer(symbol.heads, shapes))
    return replace(built, model=changed)
