"""Training section → the update rule and the initialiser of every parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import LARGEST_FLOAT32, check
from mxrun.base.registry import Registry
from mxrun.build.model import Model
from mxrun.config import Choice, Parsed, Train
from mxrun.graph.passes.updates import UpdateRule
from mxrun.train.initializer import INITIALIZERS, Initializer, initializer_for
from mxrun.train.metric import METRICS
from mxrun.train.optimizer import OPTIMIZERS, Multipliers, Optimizer, update_rules


@dataclass(frozen=True)
class Training:
    """How a model is trained.

    rules: the update of each parameter that is not frozen. initializers: of every parameter.
    """

    optimizer: Optimizer
    rules: Mapping[str, UpdateRule]
    initializers: Mapping[str, Initializer]
    metrics: tuple[str, ...]
    epochs: int


def build_training(
    parsed: Parsed, train: Train, model: Model | None, batch_size: int, problems: list[Diagnostic]
) -> Training | None:
    """Check the section against the registries; None when something is wrong, which joins
    `problems`. Without a model only the section itself is checked.
    """
    before = len(problems)
    optimizer = _chosen(train.optimizer, OPTIMIZERS, problems)
    default = _chosen(train.initializer, INITIALIZERS, problems)
    for position, name in enumerate(train.metrics):
        if name not in METRICS:
            place = parsed.place("train", "metrics", position)
            problems.append(replace(METRICS.unknown(name), place=place))
    initializers: dict[str, Initializer] = {}
    variables = {} if model is None else model.variables
    for name, variable in variables.items():
        explicit = None if variable.init is None else _chosen(variable.init, INITIALIZERS, problems)
        if default is not None:
            initializers[name] = initializer_for(name, default, explicit)
    if model is None or optimizer is None or len(problems) > before:
        return None
    multipliers = {
        name: Multipliers(variable.lr_mult, variable.wd_mult)
        for name, variable in variables.items()
        if not variable.frozen
    }
    untrainable = _untrainable(parsed, model, multipliers)
    if untrainable is not None:
        problems.append(untrainable)
        return None
    problems += _unmeasured(parsed, train, model)
    problems += _unfit(parsed, model, initializers)
    problems += _beyond_float32(parsed, optimizer, multipliers)
    if len(problems) > before:
        return None
    rules = update_rules(optimizer, multipliers, batch_size)
    return Training(optimizer, rules, initializers, train.metrics, train.epochs)


def _untrainable(
    parsed: Parsed, model: Model, multipliers: Mapping[str, Multipliers]
) -> Diagnostic | None:
    """Why training could change nothing, if so."""
    layers = parsed.key_place("network", "layers")
    if not model.losses:
        return Diagnostic(
            "the network has no loss, so it cannot be trained",
            place=layers,
            hint="end it with a loss such as SoftmaxOutput: {label: label}",
        )
    if not model.variables:
        return Diagnostic("the network has no variables: there is nothing to train", place=layers)
    if not multipliers:
        return Diagnostic(
            "every variable is frozen: nothing is left to train",
            place=parsed.key_place("network", "variables"),
            hint="take `frozen: true` from some of them",
        )
    return None


def _unmeasured(parsed: Parsed, train: Train, model: Model) -> list[Diagnostic]:
    """The losses that no metric can follow, where metrics are asked for."""
    places = {node.name: node.place for node in model.symbol.nodes}
    return [
        Diagnostic(
            f"metrics cannot follow the loss {loss.name!r}: its label does not name one class "
            "for each prediction",
            place=places[loss.name],
            expected="one label per row; with preserve_shape or multi_output, one per position",
            got=f"label {list(model.inputs[loss.label].shape)}",
            hint="train.metrics: [] measures the loss alone",
        )
        for loss in model.losses
        if train.metrics and (loss.classification is None or not loss.classification.labelled)
    ]


def _unfit(
    parsed: Parsed, model: Model, initializers: Mapping[str, Initializer]
) -> list[Diagnostic]:
    """The parameters whose initializer has no values for their shape."""
    places = {node.name: node.place for node in model.symbol.nodes}
    found = []
    for name, spec in model.parameters.items():
        problem = initializers[name].unfit(spec.shape)
        if problem is not None:
            own = model.variables[name].init
            place = places[name] if own is None else own.place
            found.append(replace(problem, problem=f"{name!r}: {problem.problem}", place=place))
    return found


def _beyond_float32(
    parsed: Parsed, optimizer: Optimizer, multipliers: Mapping[str, Multipliers]
) -> list[Diagnostic]:
    """The variables whose multipliers bring rate or decay beyond float32."""
    found = []
    for name, own in multipliers.items():
        products = {
            "lr_mult": own.learning_rate * optimizer.lr,
            "wd_mult": (own.weight_decay or 0.0) * optimizer.wd,
        }
        found += [
            Diagnostic(
                f"{key} of {name!r} brings the optimizer's {key.removesuffix('_mult')} "
                "beyond float32",
                place=parsed.place("network", "variables", name, key),
                expected=f"a product of at most {LARGEST_FLOAT32:g}",
                got=f"{product:g}",
            )
            for key, product in products.items()
            if product > LARGEST_FLOAT32
        ]
    return found


def _chosen(choice: Choice, registry: Registry[Any], problems: list[Diagnostic]) -> Any:
    """The registered model that a `{kind: {parameter: value}}` names, or None."""
    try:
        model = registry.get(choice.kind)
    except UserError as error:
        problems += (replace(found, place=choice.place) for found in error.diagnostics)
        return None
    values = {key: marked.plain() for key, marked in choice.parameters.items()}
    instance, wrong = check(model, values)
    for problem in wrong:
        place = choice.place
        if problem.path and problem.path[0] in choice.parameters:
            marked = choice.parameters[str(problem.path[0])]
            place = marked.find(*problem.path[1:]).place
        problems.append(
            Diagnostic(
                f"{choice.kind}: {problem.problem}",
                place,
                problem.expected,
                problem.got,
                problem.hint,
            )
        )
    return instance
