"""What a comparison's contestants run, and whether they do the same with it.

Everybody's first losses (in inference: outputs) are compared before anybody is timed. Dropout
drops nothing meanwhile, for everybody draws from a generator of their own; in inference what goes
into the losses is compared, because the probabilities of a network that is not trained, and has
no statistics, may be nothing but 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.build import Built
from mxrun.graph.compile import TRAIN
from mxrun.graph.infer import infer
from mxrun.graph.node import Node
from mxrun.graph.symbol import Symbol, load_json
from mxrun.operator.property import ResourceKind
from mxrun.operator.register import create
from mxrun.peers.exported import peer_symbol, without_dropout
from mxrun.peers.opponent import Contest, Opponent
from mxrun.session.build import plan_for
from mxrun.session.conversion import onnx_model
from mxrun.session.steps import Steps

# How far losses may be apart, as a part of mxrun's: the first one, and those after updates, which
# amplify rounding (at a rate of 0.1 two peers' third losses of a ResNet were 0.0016 apart).
FIRST_TOLERANCE, LATER_TOLERANCE = 1e-4, 1e-2
# The same of outputs, as a part of the largest.
OUTPUT_TOLERANCE = 1e-4
_STEPS = 3
_AXES = 2

Array = npt.NDArray[Any]


class DifferentWork(InternalError):
    """A contestant computes something else: its time would say nothing."""


@dataclass(frozen=True, eq=False)
class Work:
    """What is timed and what is compared, everybody's beginning, and mxrun's first results.

    variables, batches: what everybody begins with. losses: of the first steps; outputs: of the
    first steps, in inference. on_images: whether windows move over two axes, so that the order of
    axes in memory matters.
    """

    timed: Contest
    timed_network: Built
    checked: Contest
    checked_network: Built
    variables: Mapping[str, Array]
    batches: Mapping[str, Array]
    losses: tuple[float, ...]
    outputs: tuple[list[Array], ...]
    on_images: bool

    @classmethod
    def of(cls, built: Built, steps: Steps) -> Work:
        """Take mxrun's first steps, from its initial parameters.

        Raises UserError for training that peers cannot be asked for.
        """
        timed, training = _contest(built, steps), steps.phase == TRAIN
        network = _without_dropout(built) if training else _before_losses(built)
        checked = replace(timed, symbol=peer_symbol(network.model.symbol.tojson()))
        steps.restart()
        batches = steps.first_batches()
        variables = {name: steps.executor.array(name).copy() for name in built.model.learned}
        reference = steps
        if checked.symbol != timed.symbol:
            reference = Steps(network, plan_for(network, training, timed.threads), steps.phase)
        count = min(_STEPS, len(next(iter(batches.values()))))
        losses = tuple(reference.losses(count)) if training else ()
        outputs = () if training else tuple(reference.outputs(count))
        if not np.isfinite(losses).all():
            problem = "the losses of the first steps are no numbers: nothing can be compared"
            hint = "lower train.optimizer's rate: train.optimizer.sgd.lr=0.01"
            raise UserError(Diagnostic(problem, got=_told(losses), hint=hint))
        images = any(_moves_over_images(node) for node in built.model.symbol.nodes)
        return cls(timed, built, checked, network, variables, batches, losses, outputs, images)

    @property
    def differ(self) -> bool:
        """Whether what is timed differs from what is compared."""
        return self.checked.symbol != self.timed.symbol

    def held(self, reads: str, network: Built) -> Mapping[str, Array]:
        """What a peer begins with: the variables, or a model that has them.

        Raises UserError for a network that has no such model.
        """
        if reads == "symbol":
            return self.variables
        model = onnx_model(network, self.variables, any_batch=False).encoded()
        return {"model": np.frombuffer(model, np.uint8)}

    def difference(self, opponent: Opponent, way: str) -> float:
        """How far an opponent's first results are from mxrun's, relatively.

        Raises DifferentWork where that is more than rounding.
        """
        if self.losses:
            theirs = opponent.losses(way, len(self.losses))
            return self._loss_difference(theirs, f"{opponent.name} ({way})")
        largest = 0.0
        for step, results in enumerate(opponent.outputs(way, len(self.outputs))):
            for expected, got in zip(self.outputs[step], results, strict=True):
                apart = float(np.abs(got.reshape(expected.shape) - expected).max())
                apart /= max(float(np.abs(expected).max()), 1e-30)
                # A NaN is no agreement.
                if not apart <= OUTPUT_TOLERANCE:
                    raise DifferentWork(
                        f"{opponent.name} ({way}) does other work: outputs of step {step + 1} are "
                        f"{apart:.2g} of the largest apart, of {OUTPUT_TOLERANCE:g} allowed"
                    )
                largest = max(largest, apart)
        return largest

    def _loss_difference(self, theirs: list[float], name: str) -> float:
        ours = np.array(self.losses)
        apart = np.abs(np.array(theirs) - ours) / np.maximum(np.abs(ours), 1e-6)
        if not (apart[0] <= FIRST_TOLERANCE and (apart[1:] <= LATER_TOLERANCE).all()):
            raise DifferentWork(
                f"{name} does other work: its first losses are {_told(theirs)}, mxrun's "
                f"{_told(self.losses)}; for rounding {FIRST_TOLERANCE:g} of the first is allowed "
                f"and {LATER_TOLERANCE:g} of those after updates"
            )
        return float(apart.max())


def _moves_over_images(node: Node) -> bool:
    """Whether it has windows of two axes."""
    return node.prop is not None and len(getattr(node.prop.parameters, "kernel", ())) == _AXES


def _told(losses: tuple[float, ...] | list[float]) -> str:
    return ", ".join(f"{loss:.6g}" for loss in losses)


def _contest(built: Built, steps: Steps) -> Contest:
    """The symbol and its updates, as the peers are told them."""
    model, training = built.model, built.training
    symbol, threads = peer_symbol(model.symbol.tojson()), steps.executor.plan.threads
    if steps.phase != TRAIN:
        return Contest(symbol, "infer", threads=threads)
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
    return Contest(symbol, "train", updates, training.optimizer.lr, threads)


def _drawing(built: Built) -> list[str]:
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


def _without_dropout(built: Built) -> Built:
    """The same network, but every Dropout drops nothing."""
    return _with_symbol(built, load_json(without_dropout(built.model.symbol.tojson())))


def _before_losses(built: Built) -> Built:
    """The same network, but it gives what goes into its losses."""
    heads = [
        head
        if head.node.prop is None or head.node.prop.loss_output is None
        else head.node.inputs[head.node.prop.list_arguments().index("data")]
        for head in built.model.symbol.heads
    ]
    changed = _with_symbol(built, Symbol(heads))
    return replace(changed, model=replace(changed.model, losses=()))


def _with_symbol(built: Built, symbol: Symbol) -> Built:
    """Another network of the same variables."""
    model = built.model
    shapes = {name: spec.shape for name, spec in (*model.inputs.items(), *model.learned.items())}
    changed = replace(model, symbol=symbol, inference=infer(symbol.heads, shapes))
    return replace(built, model=changed)
