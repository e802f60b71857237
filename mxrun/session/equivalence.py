"""What a comparison's contestants run, and whether they do the same with it.

Everybody's first losses (in inference: outputs) are compared before anybody is timed. Dropout
drops nothing meanwhile, for everybody draws from a generator of their own; in inference what goes
into the losses is compared, because the probabilities of a network that is not trained, and has
no statistics, may be nothing but 0 and 1.

Updates at a high rate amplify rounding until the losses of equal work have nothing in common. So
mxrun first takes the same steps from parameters that are cut a little, and where that shows in the
losses, everybody's are compared at a lower rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, MxrunError, UserError
from mxrun.frontend import ModelDefinition
from mxrun.graph.infer import infer
from mxrun.graph.node import Node
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, load_json
from mxrun.operator.property import Precision, ResourceKind
from mxrun.operator.register import create
from mxrun.peers.baseline import BaselineProcess, Comparison
from mxrun.peers.exported import peer_symbol, without_dropout
from mxrun.session.benchmark_loop import Steps
from mxrun.session.onnx_export import onnx_model
from mxrun.session.parameter_init import drawn
from mxrun.session.planning import plan_for


@dataclass(frozen=True)
class Tolerance:
    """How far contestants may be apart: relatively in losses, in outputs as a part of the largest.

    first, later: of the first loss and of those after updates. cut: how many bits of a parameter's
    fraction are left out for seeing what rounding does: about as much as a network rounds.
    """

    first: float
    later: float
    output: float
    cut: int


TOLERANCES: Mapping[str, Tolerance] = {
    FLOAT32: Tolerance(1e-4, 1e-2, 1e-4, cut=6),
    # Of ResNet-50 0.011, 0.019 and 0.007 were seen.
    BFLOAT16: Tolerance(2e-2, 5e-2, 5e-2, cut=16),
}
_STEPS = 3
# What the cut may change of later losses: a part of what is allowed, for others round elsewhere and
# more often, or a multiple of what it changes of the first. How many lower rates are tried, each
# the last one's tenth.
_SPREAD, _MULTIPLE = 0.1, 2.0
_LOWER_RATES, _RATE_FACTOR = 4, 0.1
_AXES = 2

Array = npt.NDArray[Any]


class NotEquivalent(MxrunError):
    """A contestant computes something else: its time would say nothing."""


@dataclass(frozen=True, eq=False)
class ReferenceOutputs:
    """What is timed and what is compared, everybody's beginning, and mxrun's first results.

    checked: what is compared, perhaps at a lower rate than `timed` has. variables, batches: what
    everybody begins with. losses: of the first steps; outputs: of the first steps, in inference.
    on_images: whether windows move over two axes, so that the order of axes in memory matters.
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
        """Take mxrun's first steps, from its initial parameters.

        Raises UserError for training that peers cannot be asked for.
        """
        timed, training = _contest(built, steps), steps.phase == TRAIN
        network = _without_dropout(built) if training else _before_losses(built)
        checked = replace(timed, symbol=peer_symbol(network.model.symbol.tojson()))
        steps.restart()
        batches = steps.first_batches()
        # Before its first step mxrun's are these, but for those that its plan does not read.
        variables = {name: drawn(name, built) for name in built.model.learned}
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
        """Whether what is timed differs from what is compared."""
        return self.checked != self.timed

    @property
    def precision(self) -> str:
        """What everybody runs in."""
        return self.timed_network.config.precision

    @property
    def tolerance(self) -> Tolerance:
        """How far contestants may be apart."""
        return TOLERANCES[self.precision]

    def held(self, reads: str, network: ModelDefinition) -> Mapping[str, Array]:
        """What a peer begins with: the variables, or a model that has them.

        Raises UserError for a network that has no such model.
        """
        if reads == "symbol":
            return self.variables
        model = onnx_model(network, self.variables, any_batch=False).encoded()
        return {"model": np.frombuffer(model, np.uint8)}

    def difference(self, opponent: BaselineProcess, way: str) -> float:
        """How far an opponent's first results are from mxrun's, relatively.

        Raises DifferentWork where that is more than rounding.
        """
        if self.losses:
            theirs = opponent.losses(way, len(self.losses))
            return self._loss_difference(theirs, f"{opponent.name} ({way})")
        largest, allowed = 0.0, self.tolerance.output
        for step, results in enumerate(opponent.outputs(way, len(self.outputs))):
            for expected, got in zip(self.outputs[step], results, strict=True):
                apart = float(np.abs(got.reshape(expected.shape) - expected).max())
                apart /= max(float(np.abs(expected).max()), 1e-30)
                # A NaN is no agreement.
                if not apart <= allowed:
                    raise NotEquivalent(
                        f"{opponent.name} ({way}) does other work: outputs of step {step + 1} are "
                        f"{apart:.2g} of the largest apart, of {allowed:g} allowed"
                    )
                largest = max(largest, apart)
        return largest

    def _loss_difference(self, theirs: list[float], name: str) -> float:
        ours = np.array(self.losses)
        apart, allowed = _apart(theirs, ours), self.tolerance
        if not (apart[0] <= allowed.first and (apart[1:] <= allowed.later).all()):
            raise NotEquivalent(
                f"{name} does other work: its first losses are {_told(theirs)}, mxrun's "
                f"{_told(self.losses)}; for rounding {allowed.first:g} of the first is allowed "
                f"and {allowed.later:g} of those after updates"
            )
        return float(apart.max())


def _apart(losses: Sequence[float], ours: Sequence[float] | Array) -> Array:
    """How far losses are from others, relatively."""
    apart: Array = np.abs(np.array(losses) - ours) / np.maximum(np.abs(ours), 1e-6)
    return apart


def _first_losses(
    network: ModelDefinition, steps: Steps, count: int
) -> tuple[tuple[float, ...], float]:
    """The losses of the first steps, at a rate that does not amplify rounding, and that rate.

    Raises UserError for losses that are no numbers at the config's own rate.
    """
    rate, tolerance = network.training.optimizer.lr, TOLERANCES[network.config.precision]
    losses = tuple(steps.losses(count))
    if not np.isfinite(losses).all():
        problem = "the losses of the first steps are no numbers: nothing can be compared"
        hint = "lower train.optimizer's rate: train.optimizer.sgd.lr=0.01"
        raise UserError(Diagnostic(problem, got=_told(losses), hint=hint))
    for _ in range(_LOWER_RATES):
        spread = _apart(_losses_after_a_cut(steps, tolerance.cut, network, count), losses)
        if (spread[1:] <= max(_SPREAD * tolerance.later, _MULTIPLE * spread[0])).all():
            break
        rate *= _RATE_FACTOR
        steps = Steps(_at_rate(network, rate), steps.executor.plan, TRAIN)
        losses = tuple(steps.losses(count))
    return losses, rate


def _losses_after_a_cut(
    steps: Steps, bits: int, network: ModelDefinition, count: int
) -> list[float]:
    """The losses of the first steps from parameters whose fractions' last bits are left out."""
    steps.restart()
    kept = np.uint32(2**32 - 2**bits)
    for name in network.training.rules:
        values = steps.executor.array(name)
        values[...] = (values.view(np.uint32) & kept).view(np.float32)
    return steps.losses(count)


def _at_rate(network: ModelDefinition, rate: float) -> ModelDefinition:
    """The same network, trained at another rate."""
    training = network.training
    optimizer = training.optimizer.model_copy(update={"lr": rate})
    return replace(network, training=replace(training, optimizer=optimizer))


def _moves_over_images(node: Node) -> bool:
    """Whether it has windows of two axes."""
    return node.prop is not None and len(getattr(node.prop.parameters, "kernel", ())) == _AXES


def _told(losses: Sequence[float]) -> str:
    return ", ".join(f"{loss:.6g}" for loss in losses)


def _contest(built: ModelDefinition, steps: Steps) -> Comparison:
    """The symbol and its updates, as the peers are told them."""
    model, training = built.model, built.training
    symbol, threads = peer_symbol(model.symbol.tojson()), steps.executor.plan.threads
    if problems := _mixed(built):
        raise UserError(problems)
    if steps.phase != TRAIN:
        return Comparison(symbol, "infer", threads=threads)
    problems = [
        Diagnostic(f"training with {what} cannot be compared with peers", hint=hint)
        for what, asked, hint in (
            ("accumulated gradients", training.accumulate > 1, "train.accumulate=1"),
            ("averaged weights", training.average is not None, "leave train.average out"),
            ("a bound of all gradients' norm", training.clipping, "leave clip_global_norm out"),
        )
        if asked
    ]
    problems += [
        Diagnostic(f"{name!r} draws random numbers: its losses cannot be compared with peers'")
        for name in _drawing(built)
    ]
    if problems:
        raise UserError(problems)
    updates = {
        name: {
            "operator": rule.operator,
            "parameters": dict(rule.parameters),
            "states": len(create(rule.operator, rule.parameters).list_outputs()) - 1,
        }
        for name, rule in training.rules.items()
    }
    return Comparison(symbol, "train", updates, training.optimizer.lr, threads)


def _mixed(built: ModelDefinition) -> list[Diagnostic]:
    """The layers that run in another precision than the network, which peers cannot be told."""
    precision = built.config.precision
    return [
        Diagnostic(
            f"{node.name!r} has a precision of its own: it cannot be compared with peers",
            node.place,
            expected=precision,
            got=str(node.precision),
        )
        for node in built.model.symbol.nodes
        if node.prop is not None
        and node.precision not in (None, precision)
        and node.prop.precision is not Precision.FLOAT32
    ]


def _drawing(built: ModelDefinition) -> list[str]:
    """The nodes, Dropout aside, that draw random numbers."""
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
    """The same network, but every Dropout drops nothing."""
    return _with_symbol(built, load_json(without_dropout(built.model.symbol.tojson())))


def _before_losses(built: ModelDefinition) -> ModelDefinition:
    """The same network, but it gives what goes into its losses."""
    heads = [
        head
        if head.node.prop is None or head.node.prop.loss_output is None
        else head.node.inputs[head.node.prop.list_arguments().index("data")]
        for head in built.model.symbol.heads
    ]
    changed = _with_symbol(built, Symbol(heads))
    return replace(changed, model=replace(changed.model, losses=()))


def _with_symbol(built: ModelDefinition, symbol: Symbol) -> ModelDefinition:
    """Another network of the same variables."""
    model = built.model
    shapes = {name: spec.shape for name, spec in (*model.inputs.items(), *model.learned.items())}
    changed = replace(model, symbol=symbol, inference=infer(symbol.heads, shapes))
    return replace(built, model=changed)
