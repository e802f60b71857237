"""Configs that `init` writes for a trained network on new images, with a new head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.config.dump import flow
from mxrun.frontend import ModelDefinition
from mxrun.preparation.weight_tables import WeightTable
from mxrun.survey.config_draft import (
    ConfigDraft,
    comment_lines,
    data_lines,
    heading_lines,
    measured_lines,
)
from mxrun.survey.survey import DataSurvey

_CLASSIFIER = "FullyConnected"
# Transforms that bring images of any size to one, and those that do so with images large enough.
_RESIZING = frozenset(("resize", "random_resized_crop"))
_CROPPING = frozenset(("random_crop", "center_crop"))
_BATCHES = ((100, 8), (1000, 16))
_LARGEST_BATCH = 32
# Factor of the rate of all layers but the new head. Of a ResNet-20 on 12, 40 and 150 drawn images a
# class the accuracy was 0.83, 0.93 and 0.97 with it, but 0.54, 0.68 and 0.76 with the head alone.
_RATE = 0.3
# Steps that a new head needs at least, and the fewest and most epochs for them.
_STEPS, _MIN_EPOCHS, _MAX_EPOCHS = 300, 2, 20


@dataclass(frozen=True)
class PretrainedNetwork:
    """Network to fine-tune: a config that can be extended, and the source of its weights.

    extends: the config, as another one names it. start: the value of train.start_from without
    `skip`. table: the names in a file of weights; None for those of a run.
    """

    extends: str
    built: ModelDefinition
    start: dict[str, object]
    table: WeightTable | None = None

    @property
    def head(self) -> str:
        """Name of the last fully connected layer; raises UserError if the network has none."""
        nodes = self.built.model.symbol.nodes
        heads = [node for node in nodes if node.operator == _CLASSIFIER]
        if not heads:
            expected = f"a network that ends with {_CLASSIFIER}"
            raise UserError(Diagnostic(f"{self.extends} has no head to replace", None, expected))
        return heads[-1].name


def draft_fine_tuning(
    survey: DataSurvey, pretrained: PretrainedNetwork, name: str, file: Path
) -> ConfigDraft:
    """Return a config of this name that trains a network with a new head on the surveyed images.

    file: where it will be. Raises UserError for records that are no images with classes.
    """
    if survey.target is not None or len(survey.shape) != 3 or not survey.classes:
        expected = "images in a folder for each class"
        raise UserError(
            Diagnostic("--from needs images with classes", None, expected, survey.dataset)
        )
    head, records = pretrained.head, survey.train.records
    batch = next((size for count, size in _BATCHES if records < count), _LARGEST_BATCH)
    batch = max(1, min(batch, records))
    steps = max(records // batch, 1)
    epochs = min(max(math.ceil(_STEPS / steps), _MIN_EPOCHS), _MAX_EPOCHS)
    lines = [
        *heading_lines(survey, file),
        f"extends: {flow(pretrained.extends)}  # the network, whose layers keep their names",
        f"name: {flow(name)}  # of the run: runs/{name}",
        "seed: 0  # of initial parameters, shuffling and augmentation",
        *_form_lines(pretrained.table),
        "network:",
        "  layers:",
        f"    change: {{{head}: {{num_hidden: {len(survey.classes)}}}}}  # one for each class",
        '  variables:  # the layers that know images change less; "*": {frozen: true} keeps them',
        f'    {{"*": {{lr_mult: {_RATE}{_thawed(pretrained)}}}, "{head}_*": {{}}}}',
        *data_lines(survey, list(_transform_lines(pretrained, survey, "train")), batch),
        *_evaluation_lines(pretrained, survey),
        *([] if survey.evaluation.split is not None else ["    split: null"]),
        "train:",
        "  start_from:",
        *(f"    {key}: {flow(value)}" for key, value in _start(pretrained).items()),
        f'    skip: ["{head}_*"]  # has other classes there',
        f"  epochs: {epochs}",
        "  optimizer: {adam: {lr: 0.001}}",
        f"  schedule: {{cosine: {{warmup_steps: {min(100, steps * epochs // 10)}}}}}",
        *measured_lines(survey),
    ]
    shape = _shape(pretrained)
    choices = [
        f"{pretrained.extends} for images of {'x'.join(map(str, shape))}, with a new layer "
        f"{head}; the others have {_RATE} of its rate",
        *_said(pretrained.table),
        f"{records:,} records for training, {survey.evaluation.records:,} for evaluation",
        f"{epochs} epochs in batches of {batch}",
    ]
    return ConfigDraft("".join(f"{line}\n" for line in lines), tuple(choices))


def _thawed(pretrained: PretrainedNetwork) -> str:
    """Return what trains the layers that the extended config freezes."""
    frozen = any(each.frozen for each in pretrained.built.model.variables.values())
    return ", frozen: false" * frozen


def _evaluation_lines(pretrained: PretrainedNetwork, survey: DataSurvey) -> Iterator[str]:
    """Yield options and transforms of evaluation that the extended config has of its own."""
    section = pretrained.built.options.data.eval
    for key in () if section is None else section.options:
        if key not in survey.evaluation.options:
            yield f"    {key}: {flow(survey.options.get(key))}"
    lines = [*_transform_lines(pretrained, survey, "eval")]
    yield from ("    transforms:", *lines) if lines else ()


def _start(pretrained: PretrainedNetwork) -> dict[str, object]:
    """Return the start, with null for what the extended config's own start has besides."""
    inherited = pretrained.built.options.train.start_from
    own = (
        ()
        if inherited is None
        else inherited.model_fields_set & {"weights", "names", "run", "checkpoint"}
    )
    every = {} if inherited is None or inherited.load == ("*",) else {"load": ["*"]}
    return {**dict.fromkeys(sorted(own)), **every, **pretrained.start}


def _form_lines(table: WeightTable | None) -> Iterator[str]:
    """Yield the edits that give the network the form that the weights are of."""
    for form in () if table is None else table.forms:
        yield from comment_lines(f"{form.problem}:", "", "")
        yield form.edits


def _said(table: WeightTable | None) -> Iterator[str]:
    """Yield what the table of the weights decided."""
    if table is None:
        return
    mean, std = _normalisation(table)
    yield f"the names of {table.framework} for {table.networks}"
    yield f"as these weights need them, images have mean {flow(mean)} and deviation {flow(std)}"
    yield from (f"changed here: {form.problem}" for form in table.forms)
    if table.caveat:
        yield table.caveat


def _normalisation(table: WeightTable) -> tuple[list[float], list[float]]:
    wanted = table.normalisation
    mean, std = ([round(value, 6) for value in each] for each in (wanted.mean, wanted.std))
    return mean, std


def _transform_lines(pretrained: PretrainedNetwork, survey: DataSurvey, role: str) -> Iterator[str]:
    """Yield the transforms of the extended config with the normalisation of the weights.

    Images of other sizes than the network reads are brought to its own first, unless the config
    does so.
    """
    section = getattr(pretrained.built.options.data, role)
    choices = (section and section.transforms) or ()
    kinds = {choice.kind for choice in choices}
    height, width = _shape(pretrained)[-2:]
    is_fitting = survey.sizes is None or survey.sizes.least == survey.sizes.greatest == (
        height,
        width,
    )
    if not is_fitting and not kinds & _RESIZING and (kinds or role == "train"):
        yield f"      - resize: {{size: {max(height, width)}}}  # the shorter side; the ratio stays"
        if not kinds & _CROPPING:
            yield f"      - center_crop: {{size: [{height}, {width}]}}"
    for choice in choices:
        parameters: Mapping[str, object] = {k: v.plain() for k, v in choice.parameters.items()}
        if choice.kind == "normalize" and pretrained.table is not None:
            mean, std = _normalisation(pretrained.table)
            parameters = {"mean": mean, "std": std}
        yield f"      - {flow({choice.kind: parameters} if parameters else choice.kind)}"


def _shape(pretrained: PretrainedNetwork) -> Shape:
    """Return the shape of an image that the network reads."""
    return next(iter(pretrained.built.model.records.values())).shape
