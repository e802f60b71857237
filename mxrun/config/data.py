"""The `data` section: data sets of training and evaluation, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from mxrun.base.cores import usable_cores
from mxrun.base.keywords import REST
from mxrun.base.limits import MAX_SEED
from mxrun.base.validation import custom_error
from mxrun.config.fields import AnyChoice, AnyOption, Size
from mxrun.config.section import NoEffect, Section


class SplitSection(Section):
    """Part of a data set, and optionally a range or share of its records."""

    written: ClassVar[str] = "a split's name or a mapping"

    of: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="The split's name, such as train or test; of an image_folder, any folder in "
        "it; default: the section's usual split.",
        examples=["train"],
    )
    range: tuple[int, int] | None = Field(
        default=None,
        description="The first record and the one after the last, counted from 0; default: all.",
        examples=[[0, 9000]],
    )
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="The fraction of the records to draw at random; default: all.",
        examples=[0.8],
    )
    seed: Annotated[int, Field(ge=0, lt=MAX_SEED + 1)] | None = Field(
        default=None, description="Seed of the selection of a share; default: 0.", examples=[1]
    )
    stratify: bool | None = Field(
        default=None,
        description="Whether the same share is drawn from each class; default: false.",
        examples=[True],
    )
    rest: bool = Field(
        default=False,
        description="In data.eval, whether the part is all records outside of the range or share "
        "of data.train; usually written `split: rest`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, given: Any) -> Any:
        if given == REST:
            return {"rest": True}
        return {"of": given} if isinstance(given, str) else given

    @field_validator("range")
    @classmethod
    def _ordered(cls, given: tuple[int, int] | None) -> tuple[int, int] | None:
        if given is not None and not 0 <= given[0] < given[1]:
            raise custom_error("range", "[first, end] with 0 <= first < end; `end` is exclusive")
        return given


def _or_name(schema: dict[str, Any]) -> None:
    """Allow a name in a schema in place of a mapping with that name."""
    schema["anyOf"].insert(0, {"type": "string", "minLength": 1})


class WindowSection(Section):
    """Shuffle within a window."""

    written: ClassVar[str] = "{window: N} with N >= 1"

    window: Size = Field(
        description="The number of places by which a record may move.", examples=[10000]
    )


class DatasetSection(Section):
    """Data set and how it is read; other keys are options of the data set itself."""

    OWN_KEYS: ClassVar[frozenset[str]] = frozenset(
        {"dataset", "split", "part_index", "num_parts", "shuffle", "sampling", "transforms"}
    )

    dataset: str = Field(
        min_length=1, description="The data set or file format.", examples=["digits"]
    )
    split: SplitSection | None = Field(
        default=None,
        description="The part to read: a name, a range, a share, or rest, the records outside of "
        "data.train. Of an image_folder, a name is that of a folder in its path, such as val; "
        "default: the rest if data.train takes a share of the same records; else the split with "
        "the section's usual name (train; val or test), or all.",
        examples=[
            "train",
            {"share": 0.8, "seed": 1, "stratify": True},
            {"of": "train", "range": [0, 1000]},
            {"rest": True},
        ],
        json_schema_extra=_or_name,
    )
    part_index: Annotated[int, Field(ge=0, lt=1 << 31)] | None = Field(
        default=None,
        description="The part of the records that this run reads, counted from 0, of `num_parts`; "
        "default: 0.",
        examples=[0],
    )
    num_parts: Size | None = Field(
        default=None,
        description="The number of parts into which the records of `split` are divided: each is a "
        "range of them, disjoint from the others, and all together are complete; default: 1.",
        examples=[4],
    )
    shuffle: bool | WindowSection = Field(
        default=False,
        description="Whether the records have a new random order in every epoch. `{window: N}` "
        "moves no record by more than N places, so that files are read nearly in order.",
        examples=[True, {"window": 10000}],
    )
    sampling: Literal["balanced"] | None = Field(
        default=None,
        description="How the records of an epoch are drawn: each class equally often, in random "
        "order (balanced), as many in all as there are records; default: each record once.",
        examples=["balanced"],
    )
    transforms: tuple[AnyChoice, ...] | None = Field(
        default=None,
        description="Transforms of each record, in order; default: none, and in data.eval those of "
        "data.train without the random ones.",
        examples=[[{"random_resized_crop": {"size": 64}}, "flip"]],
    )
    options: Mapping[str, AnyOption] = Field(default={}, description="The data set's own options.")

    @property
    def is_shuffled(self) -> bool:
        """True if epochs differ in their order of records."""
        return self.shuffle is not False or self.sampling is not None


# Default of the number of loader threads, where there are more cores.
_MAX_DEFAULT_WORKERS = 8


class Data(Section):
    """Data for training and evaluation."""

    stand_ins: ClassVar[Mapping[str, object]] = {"batch_size": 1}

    batch_size: Size = Field(description="Samples per step.", examples=[64])
    train: DatasetSection = Field(
        description="The training data; if neither it nor eval has the path that its data set "
        "requires, training uses synthetic data.",
        examples=[{"dataset": "digits", "split": "train"}],
    )
    eval: DatasetSection | None = Field(
        default=None,
        description="The evaluation data, which is measured after every epoch. If its data set is "
        "that of data.train, it inherits every option that it does not set itself, except the "
        "keys of the section such as split and shuffle; default: none.",
        examples=[{"dataset": "digits", "split": "test"}],
    )
    last_batch: Literal["pad", "discard", "roll_over"] | None = Field(
        default=None,
        description="Treatment of an incomplete last batch: fill it with rows of weight 0, drop "
        "it, or move its records to the next epoch; default: pad.",
        examples=["discard"],
    )
    workers: Annotated[Annotated[int, Field(ge=0, le=256)] | None, NoEffect()] = Field(
        default=None,
        description="Number of threads that decode and transform records; 0 does it on the thread "
        "that awaits them; default: the number of cores, at most 8. Results do not depend on it.",
        examples=[4],
    )
    worker_kind: Annotated[Literal["auto", "thread", "process"], NoEffect()] = Field(
        default="auto",
        description="Where transforms of your own, in Python, run: on the workers' threads, in a "
        "process for each, or in what is faster by timing (auto). Results do not depend on it.",
        examples=["process"],
    )
    worker_timeout: Annotated[float, Field(gt=0, le=86400), NoEffect()] = Field(
        default=60.0,
        description="Seconds that a process may take to transform one record; a new process then "
        "tries it again, two times at most.",
        examples=[10.0],
    )
    # Without a bad record both are the same, and an error ends a run before one.
    on_bad_record: Annotated[Literal["error", "skip"], NoEffect()] = Field(
        default="error",
        description="Treatment of a record that cannot be read, decoded or transformed: end the "
        "run, its state saved, or leave it out and list it in bad_records.jsonl.",
        examples=["skip"],
    )
    max_bad_records: Annotated[Annotated[int, Field(ge=0, lt=1 << 31)] | None, NoEffect()] = Field(
        default=None,
        description="Number of different records of each data set that may be left out; one more "
        "ends the run; default: 1 % of the data set, at least 10.",
        examples=[100],
    )
    prefetch: Annotated[int, Field(ge=1, le=16), NoEffect()] = Field(
        default=2,
        description="Number of batches made ahead if records are read from files or transformed.",
        examples=[4],
    )

    @property
    def loader_threads(self) -> int:
        """Number of threads that make records."""
        if self.workers is not None:
            return self.workers
        return min(usable_cores(), _MAX_DEFAULT_WORKERS)
