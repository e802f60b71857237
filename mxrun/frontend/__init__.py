"""Frontend: from a config to a model definition; all checks that need the registries.

All diagnostics are collected in one pass: those of the config layer, unknown operators and
parameters, wiring, shapes and data sections, each with its location.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.once import cached_property
from mxrun.base.slices import Shard
from mxrun.base.tensor import TensorSpec
from mxrun.config import Parsed, RunOptions
from mxrun.frontend.buckets import bucket_models, bucket_problems
from mxrun.frontend.contexts import division_problems, divisor, indivisible, shard_problems
from mxrun.frontend.data import data_requests, missing_data
from mxrun.frontend.labels import label_problems
from mxrun.frontend.micro_batches import micro_batch_problems
from mxrun.frontend.model import Model, build_model, contradictions
from mxrun.frontend.network import wire
from mxrun.frontend.soft_labels import soft_label_problems
from mxrun.frontend.training import TrainingSetup, build_training
from mxrun.frontend.vocabularies import vocabulary_problems
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import DatasetRequest

__all__ = ["Model", "ModelDefinition", "TrainingSetup", "build", "check_labels"]


@dataclass(frozen=True)
class ModelDefinition:
    """Complete definition of a run: the model, its training and data; no file has been opened.

    model: for one computation, which is a batch, or one of its `contexts` * `micro_batches` *
    `batch_parts` parts; each context computes `micro_batches` of them, and each of `ranks`, the
    processes that train together, an equal share of the batch parts; this one has number `rank`.
    options: of the run, whatever the model. data: the requests of `train` and `eval`, without
    sections in which a required value is missing. missing: one diagnostic for each required value
    that the options do not give.
    """

    model: Model
    options: RunOptions
    training: TrainingSetup
    data: Mapping[str, DatasetRequest]
    missing: tuple[Diagnostic, ...] = ()
    micro_batches: int = 1
    contexts: int = 1
    batch_parts: int = 1
    ranks: int = 1
    rank: int = 0

    @cached_property
    def buckets(self) -> dict[int, Model]:
        """The model for each shorter length to which sequences are padded, ascending."""
        return bucket_models(self.model, self.data)

    @property
    def batch_size(self) -> int:
        """Number of samples of a batch, all parts together."""
        return self.model.batch_size * self.parts

    @property
    def parts(self) -> int:
        """Number of parts in which a batch is computed."""
        return self.micro_batches * self.contexts * self.batch_parts

    @property
    def own_parts(self) -> int:
        """Number of batch parts that each rank computes."""
        return self.batch_parts // self.ranks

    @property
    def updates_apart(self) -> bool:
        """Whether parameters are updated by a phase of its own, after an exchange of gradients."""
        return self.contexts * self.batch_parts > 1

    @property
    def full_scale(self) -> float:
        """Factor of the gradients in an update from full batches."""
        scale, parts = self.training.scale, self.parts * self.training.accumulate
        return scale.factor(parts * scale.counted(self.model.batch_size))

    def with_micro_batches(self, parts: int) -> ModelDefinition:
        """Return the same run with each context's batch split into `parts` micro-batches.

        parts: a divisor of that batch's size. Raises UserError if a declared shape contradicts the
        size of the micro-batch.
        """
        size = self.batch_size // (parts * self.contexts)
        return replace(self, model=self.model.resized(size), micro_batches=parts)

    def divided(self) -> ModelDefinition:
        """Return the same run with each batch divided among all contexts of the config, or into its
        batch parts.

        Raises UserError if their number does not divide the batch size.
        """
        count, batch_size = divisor(self.options), self.batch_size
        if count == 1 or self.updates_apart:
            return self
        if batch_size % count:
            raise UserError(indivisible(self.options, batch_size))
        return replace(
            self,
            model=self.model.resized(batch_size // count),
            contexts=len(self.options.devices),
            batch_parts=self.options.parts_of_batch,
        )

    @property
    def shard(self) -> Shard | None:
        """The rank, if each of several has the states of its own slices of the parameters."""
        is_sharded = self.options.shard == "states" and self.ranks > 1
        return Shard(self.rank, self.ranks) if is_sharded else None

    @property
    def sliced_states(self) -> dict[str, TensorSpec] | None:
        """Specs of the entire optimizer states by name, if each rank has a part; else None."""
        if self.shard is None:
            return None
        states, learned = self.training.optimizer.states, self.model.learned
        return {
            f"{name}:{state}": learned[name] for name in self.training.rules for state in states
        }

    def on_ranks(self, count: int, rank: int = 0) -> ModelDefinition:
        """Return the same run with the batch parts divided among `count` ranks, for one of them.

        Raises UserError unless each of several ranks gets as many as a branch of the tree has, and
        for metrics whose totals cannot be added.
        """
        parts = self.options.parts_of_batch
        own = parts // count
        if count > 1 and (parts % count or own & (own - 1)):
            raise UserError(
                Diagnostic(
                    f"{count} ranks cannot share {parts} batch parts",
                    self.options.key_place("batch_parts"),
                    "a number of batch parts that is the number of ranks, or that times a power "
                    "of 2",
                    f"batch_parts: {parts}",
                    hint=f"start another number of processes, or write batch_parts: {count}: the "
                    "result is then that of another run",
                )
            )
        whole = [kind.figure for kind in self.training.metrics if not kind.adds_up]
        if count > 1 and whole:
            raise UserError(
                Diagnostic(
                    f"{whole[0]} cannot be measured by several ranks: it ranks all records",
                    self.options.key_place("train", "metrics"),
                    hint="leave it out, and measure it with mxrun evaluate",
                )
            )
        return replace(self, ranks=count, rank=rank)

    def with_data(self, sections: Mapping[str, Mapping[str, object]]) -> ModelDefinition:
        """Return the same run on other data sections: plain values by role, `train` or `eval`.

        Raises UserError for options that a data set does not have.
        """
        options, diagnostics = self.options.with_data(sections), Diagnostics()
        requests = data_requests(options, options.data, diagnostics)
        if diagnostics:
            raise UserError(diagnostics)
        missing = options.missing + missing_data(options)
        return replace(self, options=options, data=requests, missing=missing)


def build(parsed: Parsed, batch_size: int | None = None) -> ModelDefinition:
    """Build the model definition; `batch_size` replaces the config's.

    Raises UserError with every diagnostic of the config and of its parts.
    """
    diagnostics = Diagnostics(parsed.diagnostics, parsed.unknown)
    before = len(diagnostics)
    symbol = wire(parsed, diagnostics)
    model = training = None
    if symbol is not None and parsed.network is not None:
        # Without a valid batch size, shapes are checked for one sample.
        size = batch_size or (1 if parsed.data is None else parsed.data.batch_size)
        if len(diagnostics) == before:
            model = build_model(parsed, parsed.network, symbol, size, diagnostics)
        else:
            diagnostics += contradictions(parsed.network, symbol, size)
    if parsed.train is not None:
        size = 1 if model is None else model.batch_size
        training = build_training(parsed, parsed.train, model, size, diagnostics)
    requests = {} if parsed.data is None else data_requests(parsed, parsed.data, diagnostics)
    if parsed.config is not None and model is not None:
        diagnostics += micro_batch_problems(parsed.config, model)
        diagnostics += division_problems(parsed.config, model)
        diagnostics += shard_problems(parsed.config, training)
        diagnostics += bucket_problems(parsed.config, model, requests)
    if diagnostics or parsed.config is None or model is None or training is None:
        raise UserError(sorted(diagnostics, key=_place))
    options = parsed.config.options
    missing = options.missing + missing_data(options)
    return ModelDefinition(model, options, training, requests, missing)


def check_labels(built: ModelDefinition, datasets: Iterable[Dataset]) -> None:
    """Check the labels of data sets against the network.

    Raises UserError if the classes of a data set differ from the network's, if labels that a loss
    reads as probabilities are not probabilities, or if a text has more tokens than the network.
    """
    datasets = tuple(datasets)
    diagnostics = label_problems(built.model, datasets)
    diagnostics += soft_label_problems(built.model, datasets)
    diagnostics += vocabulary_problems(built.model, datasets)
    if diagnostics:
        raise UserError(diagnostics)


def _place(problem: Diagnostic) -> SourceLocation:
    return problem.place or SourceLocation("", 0, 0)
