"""The iterator that reads a data set."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.codegen.host_loop import HostLoops, loop_on_one_thread
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.loading.array_iterator import ArrayIterator
from mxrun.io.loading.bad_records import BadRecords
from mxrun.io.loading.bucket_iterator import BucketIterator
from mxrun.io.loading.bucket_order import BucketOrder
from mxrun.io.loading.cached_columns import with_cached_columns
from mxrun.io.loading.iterator import DataIterator
from mxrun.io.loading.order import BatchOrder, LastBatch
from mxrun.io.loading.prefetch import PrefetchIterator
from mxrun.io.loading.python_transforms import TransformRunner
from mxrun.io.loading.sampling import Balanced, ContiguousRows, Shuffle
from mxrun.io.loading.staging import Staging
from mxrun.runtime.engine.threaded import ThreadedEngine


def balanced(dataset: Dataset) -> Balanced:
    """Return the sampling that draws each class of a data set equally often.

    Raises UserError for a data set without classes.
    """
    classes = dataset.class_numbers
    if classes is None:
        problem = f"data set {dataset.name!r} has no classes to draw equally often"
        raise UserError(Diagnostic(problem, dataset.place, hint="remove sampling: balanced"))
    return Balanced(classes)


def open_iterator(
    dataset: Dataset,
    batch_size: int,
    *,
    shuffle: Shuffle = False,
    seed: int = 0,
    last_batch: LastBatch = "pad",
    loops: HostLoops = loop_on_one_thread,
    workers: int = 1,
    staging: Staging | None = None,
    parts: int = 1,
    rank: int = 0,
    ranks: int = 1,
    engine: str = ThreadedEngine.kind,
    bad_records: BadRecords | None = None,
    python: TransformRunner | None = None,
) -> DataIterator:
    """Return the iterator for an opened data set: directly from memory, or with loader threads.

    `shuffle` is that of records that may be shuffled: those of a stream follow each other. Small
    arrays in files are read into memory here, if they have no transforms.
    `loops`, such as a device's, gather rows from memory. `workers` (loader threads), `staging`
    (memory of the prefetched batches), `engine` (the kind: `naive` reads records on the thread that
    awaits them), `bad_records` (which are left out; None: their error is raised) and `python` (the
    user's own transforms, by default on the threads) are used only if records are read lazily or
    transformed.
    `parts`: number of equal parts in which each batch is delivered, staged batches too; the process
    number `rank` of `ranks` reads its share of them. Raises UserError if `last_batch` leaves no
    batch of the data set.
    """
    if dataset.buckets is not None:
        return _bucketed(dataset, batch_size, shuffle, seed, last_batch, parts, loops)
    if dataset.is_stream:
        shuffle = ContiguousRows()
    dataset = with_cached_columns(dataset)
    order = BatchOrder(
        count=len(dataset),
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        last_batch=last_batch,
        parts=parts,
        rank=rank,
        ranks=ranks,
    )
    if not (dataset.lazy or dataset.pipeline):
        return ArrayIterator(dataset, order, loops)
    return PrefetchIterator(
        dataset,
        order,
        workers=workers,
        staging=staging or Staging(),
        engine=engine,
        bad_records=bad_records,
        python=python,
    )


def _bucketed(
    dataset: Dataset,
    batch_size: int,
    shuffle: Shuffle,
    seed: int,
    last_batch: LastBatch,
    parts: int,
    loops: HostLoops,
) -> DataIterator:
    """Return the iterator of a data set in buckets; raises UserError for other orders."""
    assert dataset.buckets is not None
    wrong = ""
    if not isinstance(shuffle, bool):
        wrong = "records in buckets have no window and no balanced sampling"
    elif dataset.pipeline:
        wrong = "records in buckets have no transforms"
    elif last_batch == "roll_over":
        wrong = "records in buckets do not roll over to the next epoch"
    if wrong:
        raise UserError(Diagnostic(wrong, dataset.place, hint="leave out the buckets"))
    order = BucketOrder(dataset.buckets, batch_size, shuffle is True, seed, last_batch)
    return BucketIterator(dataset, order, parts, loops)
