"""Training section of a config: update rules and initialisers of all parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import LARGEST_FLOAT32
from mxrun.base.errors import Diagnostic, Diagnostics, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.base.regression import Regression
from mxrun.config import Choice, Parsed, Train
from mxrun.frontend.class_weights import ClassWeighting, class_weighting
from mxrun.frontend.instantiate import instantiate
from mxrun.frontend.measured_layers import candidates
from mxrun.frontend.model import Model
from mxrun.graph.lower import lower
from mxrun.graph.trainability import untrainable
from mxrun.graph.update_rule import Clipping, Multipliers, UpdateRule, update_rules
from mxrun.operator.optimizer import BATCH_SIZE, OPTIMIZERS, Optimizer
from mxrun.train.checkpoint_manager import Policy
from mxrun.train.early_stopping import EarlyStopping, EvaluationMonitor
from mxrun.train.gradient_scale import GradientScale
from mxrun.train.initializer import INITIALIZERS, Initializer, initializer_for
from mxrun.train.measure import LossTensors, figure_prefixes
from mxrun.train.metric import config_forms, default_metrics, supported_metrics
from mxrun.train.metric_kind import METRICS, MetricKind
from mxrun.train.schedule import SCHEDULES, Plateau, Schedule
from mxrun.train.training_parameters import TrainingParameters

# Beginning of the names of evaluation's figures in other frameworks.
_EVALUATED = re.compile(r"^(val|valid|validation|eval|test)[_./]")


@dataclass(frozen=True)
class TrainingSetup(TrainingParameters):
    """Training of a model: the parameters of its course, and how its plan is made and started.

    rules: the update of each parameter that is not frozen. clipping: limit on the global norm of
    all gradients. scale: of the gradients in an update. initializers: of every parameter. metrics:
    each is measured for the losses that it fits. average: momentum of the weights' moving average.
    class_weights: None without them.
    """

    rules: Mapping[str, UpdateRule]
    clipping: Clipping | None
    scale: GradientScale
    initializers: Mapping[str, Initializer]
    metrics: tuple[MetricKind, ...]
    average: float | None
    policy: Policy
    class_weights: ClassWeighting | None


def build_training(
    parsed: Parsed, train: Train, model: Model | None, batch_size: int, diagnostics: Diagnostics
) -> TrainingSetup | None:
    """Check the training section against the registries and return its setup.

    On errors, which are added to `diagnostics`, the result is None. Without a model only the
    section itself is checked.
    """
    before = len(diagnostics)
    optimizer = instantiate(train.optimizer, OPTIMIZERS, diagnostics)
    schedule = instantiate(train.schedule, SCHEDULES, diagnostics)
    default = instantiate(train.initializer, INITIALIZERS, diagnostics)
    metrics = _metrics(train, model, diagnostics)
    initializers = {} if model is None else _initializers(model, default, diagnostics)
    if model is None or optimizer is None or schedule is None or len(diagnostics) > before:
        return None
    multipliers = {
        name: Multipliers(variable.lr_mult, variable.wd_mult)
        for name, variable in model.variables.items()
        if name in model.trainable and not variable.frozen
    }
    impossible = _impossible(parsed, model, multipliers)
    if impossible is not None:
        diagnostics.add(impossible)
        return None
    diagnostics += _without_gradient(model, multipliers)
    diagnostics += _unsupported(parsed, model, initializers)
    diagnostics += _beyond_float32(parsed, optimizer, multipliers)
    watch = _watch(parsed, train, model, metrics, schedule, diagnostics)
    weighting = class_weighting(parsed, train, model, diagnostics)
    scale = _gradient_scale(parsed, optimizer, model, batch_size * train.accumulate, diagnostics)
    if len(diagnostics) > before:
        return None
    limit = optimizer.clip_global_norm
    return TrainingSetup(
        optimizer=optimizer,
        schedule=schedule,
        rules=update_rules(optimizer, multipliers),
        clipping=None if limit is None else Clipping(limit),
        scale=scale,
        initializers=initializers,
        metrics=metrics,
        # Every epoch has a step or more.
        epochs=train.epochs or train.max_steps or 1,
        max_steps=train.max_steps,
        log_every=train.log_every,
        accumulate=train.accumulate,
        average=train.average,
        watch=watch,
        policy=Policy(train.checkpoint.every, train.checkpoint.keep, watch.best),
        class_weights=weighting,
    )


def _initializers(
    model: Model, default: Initializer | None, diagnostics: Diagnostics
) -> dict[str, Initializer]:
    """Return the initialiser of each parameter; none without a valid `default`."""
    initializers: dict[str, Initializer] = {}
    for name, variable in model.variables.items():
        explicit = (
            None if variable.init is None else instantiate(variable.init, INITIALIZERS, diagnostics)
        )
        if default is not None:
            shapes = {part.name: part.shape for part in model.packed.get(name, ())}
            initializers[name] = initializer_for(name, default, explicit, shapes)
    return initializers


def _gradient_scale(
    parsed: Parsed, optimizer: Optimizer, model: Model, samples: int, diagnostics: Diagnostics
) -> GradientScale:
    """Return the scale of the gradients; `samples` is the number of rows in an update.

    Losses of which only some average their gradients are reported: no factor suits both.
    """
    given = optimizer.rescale_grad
    if given is not None:
        return GradientScale("batch size", 1 / samples if given == BATCH_SIZE else given)
    averaged = [loss.name for loss in model.losses if loss.averages_gradient]
    summed = [loss.name for loss in model.losses if not loss.averages_gradient]
    if averaged and summed:
        diagnostics.add(
            Diagnostic(
                "rescale_grad has no default for losses of which some average their gradients "
                "over the batch (normalization) and others sum them",
                parsed.key_place("train", "optimizer"),
                "losses of one kind, or a number as rescale_grad",
                f"means: {listed(averaged)}; sums: {listed(summed)}",
                hint=f"rescale_grad: {BATCH_SIZE} divides both by the batch size, as MXNet does",
            )
        )
    return GradientScale("batch parts" if averaged else "records")


def _watch(
    parsed: Parsed,
    train: Train,
    model: Model,
    metrics: Sequence[MetricKind],
    schedule: Schedule,
    diagnostics: Diagnostics,
) -> EvaluationMonitor:
    """Return the monitor of evaluations; report metrics that are not measured."""
    measured = {
        f"{prefix}{kind.figure}": kind
        for prefix, layer in zip(figure_prefixes(model.measured), model.measured, strict=True)
        for kind in layer.named(metrics)
        if not kind.why_unsupported(layer.measured)
    }
    known = {name: kind for name, kind in measured.items() if not kind.is_table}
    stopping, best = train.early_stopping, train.checkpoint.best
    early = None
    if stopping is not None:
        early = EarlyStopping(stopping.metric, stopping.patience, stopping.min_delta)
    plateau = schedule if isinstance(schedule, Plateau) else None
    wanted = {
        ("checkpoint", "best"): best,
        ("early_stopping", "metric"): None if early is None else early.metric,
        ("schedule",): None if plateau is None else plateau.metric,
    }
    for path, metric in wanted.items():
        if metric is not None and metric != "loss" and metric not in known:
            names = ["loss", *known]
            problem, hint = f"nothing measures {metric!r}", "add it to train.metrics"
            measure = _EVALUATED.sub("", metric)
            if measure in names:
                hint = f"write {measure}: it is measured on data.eval"
            if metric in measured:
                problem, hint = f"{metric!r} is a table, not a number", ""
            diagnostics.add(
                Diagnostic(
                    f"train.{'.'.join(path)}: {problem}",
                    place=parsed.place("train", *path),
                    expected=f"one of {', '.join(names)}",
                    got=metric,
                    hint=_figures_of(metric, known) or nearest(metric, names) or hint,
                )
            )
    higher = frozenset(name for name, metric in known.items() if metric.higher_is_better)
    plateau = None if plateau is None else plateau.directed(higher)
    if best is None and early is not None:
        best = early.metric
    return EvaluationMonitor(best=best, early=early, plateau=plateau, higher=higher)


def _figures_of(metric: str, known: Mapping[str, MetricKind]) -> str:
    """Return a hint with the figures of a metric given by its name in train.metrics; else empty.

    Parameters are part of a figure's name: that of `{f1: {average: macro}}` is f1_macro.
    """
    kind = METRICS.get(metric) if metric in METRICS else None
    figures = [repr(name) for name, each in known.items() if type(each) is kind]
    return f"did you mean {' or '.join(figures)}?" if figures else ""


def _without_gradient(model: Model, trained: Collection[str]) -> Sequence[Diagnostic]:
    """Return diagnostics for trained variables that have no gradient."""
    try:
        graph = lower(model.symbol, model.inference, model.inputs.keys(), is_train=True)
    except UserError as error:
        return error.diagnostics
    return untrainable(graph, trained)


def _impossible(
    parsed: Parsed, model: Model, multipliers: Mapping[str, Multipliers]
) -> Diagnostic | None:
    """Return a diagnostic if training could change nothing."""
    layers = parsed.key_place("network", "layers")
    if not model.losses:
        return Diagnostic(
            "the network has no loss, so it cannot be trained",
            place=layers,
            hint="end it with a loss such as SoftmaxOutput: {label: label}",
        )
    if not model.parameters:
        return Diagnostic("the network has no variables: there is nothing to train", place=layers)
    if not multipliers:
        return Diagnostic(
            "every variable is frozen: nothing is left to train",
            place=parsed.key_place("network", "variables"),
            hint="take `frozen: true` from some of them",
        )
    return None


def _metrics(train: Train, model: Model | None, diagnostics: Diagnostics) -> tuple[MetricKind, ...]:
    """Return the metrics to measure besides the losses; add problems to `diagnostics`."""
    if train.metrics is None:
        return default_metrics(loss.measured for loss in model.losses) if model is not None else ()
    kinds: dict[tuple[str | None, str], MetricKind] = {}
    for choice in train.metrics:
        found = Diagnostics()
        kind = instantiate(choice, METRICS, found)
        if choice.kind not in METRICS:
            known = f"one of {', '.join(config_forms())}"
            diagnostics += (replace(each, expected=known) for each in found)
            continue
        diagnostics += found
        if kind is None:
            continue
        fits = [] if model is None else [each for each in model.measured if each.named([kind])]
        if (kind.of, kind.figure) in kinds:
            problem = f"two metrics are named {kind.figure!r}"
            diagnostics.add(Diagnostic(problem, choice.place, hint="leave one of them out"))
        elif fits and all(kind.why_unsupported(each.measured) for each in fits):
            diagnostics.add(_unmeasured(choice, kind, fits, model))
        kinds[kind.of, kind.figure] = kind
    return tuple(kinds.values())


def _unmeasured(
    choice: Choice, kind: MetricKind, layers: Sequence[LossTensors], model: Model | None
) -> Diagnostic:
    """Describe why a metric fits none of the layers; list metrics that do, or layers that would."""
    assert model is not None
    fit = supported_metrics(layer.measured for layer in layers)
    hint = f"metrics that fit: {', '.join(fit)}" if fit else "train.metrics: []"
    others = candidates(kind, model.symbol, model.inference, model.records)
    if others and not fit:
        forms = [f"{{{choice.kind}: {{of: {name}, label: {label}}}}}" for name, label in others]
        hint = f"name the layer that it looks at: {listed(forms)}"
    (first, *_) = layers
    if kind.of is not None and isinstance(first.task, Regression) and first.loss == "":
        probable = replace(first.task, probabilities=True)
        if not kind.why_unsupported(probable):
            hint = (
                f"if {kind.of!r} is from 0 to 1, say so: add `- clip: {{name: probability, data: "
                f"{kind.of}, a_min: 0, a_max: 1}}` and write of: probability"
            )
    what = "no loss of the network" if kind.of is None else f"not {kind.of!r}"
    return Diagnostic(
        f"the metric {choice.kind!r} fits {what}",
        choice.place,
        hint=hint,
        chain=tuple(f"{layer.name!r} {kind.why_unsupported(layer.measured)}" for layer in layers),
    )


def _unsupported(
    parsed: Parsed, model: Model, initializers: Mapping[str, Initializer]
) -> list[Diagnostic]:
    """Return diagnostics for parameters whose initialiser does not support their shape."""
    places = {node.name: node.place for node in model.symbol.nodes}
    found = []
    for name, spec in model.learned.items():
        problem = initializers[name].why_unsupported(spec.shape)
        if problem is not None:
            own = model.variables[name].init
            place = places[name] if own is None else own.place
            found.append(replace(problem, problem=f"{name!r}: {problem.problem}", place=place))
    return found


def _beyond_float32(
    parsed: Parsed, optimizer: Optimizer, multipliers: Mapping[str, Multipliers]
) -> list[Diagnostic]:
    """Return diagnostics for variables whose multipliers make rate or decay exceed float32."""
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
