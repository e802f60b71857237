"""`mxrun datasets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.datasets import (
    CheckDataOptions,
    DescribeDatasetOptions,
    FetchOptions,
    ListDatasetsOptions,
    PeekOptions,
    StatisticsOptions,
)

if TYPE_CHECKING:
    from mxrun.commands.datasets import DataSections

_DAMAGED = 2


@COMMANDS.register("datasets", order=210, foreign={"datasets": "data"})
def datasets() -> None:
    """List and fetch data sets; look at a config's data and check it.

    \b
    Examples:
      mxrun datasets list
      mxrun datasets fetch mnist
      mxrun datasets peek digits_lenet
      mxrun datasets check net.yaml
    """


@COMMANDS.register("datasets list", order=10)
def list_(options: ListDatasetsOptions) -> None:
    """List the data sets and file formats that configs can read.

    \b
    Examples:
      mxrun datasets list
      mxrun datasets list --json
    """
    from mxrun.commands import datasets as command
    from mxrun.report.datasets import list_tables
    from mxrun.report.result import write_json, write_tables

    rows = command.dataset_rows()
    if options.json:
        write_json({"datasets": rows})
    else:
        write_tables(list_tables(rows))


@COMMANDS.register("datasets describe", order=20)
def describe(options: DescribeDatasetOptions) -> None:
    """Describe a data set: its options, fields and splits, where its files come from, its licence.

    \b
    Examples:
      mxrun datasets describe cifar10
      mxrun datasets describe csv --json
    """
    from mxrun.commands import datasets as command
    from mxrun.report.datasets import description_parts
    from mxrun.report.result import write_json, write_tables

    report = command.dataset_description(options.name)
    if options.json:
        write_json(report)
    else:
        write_tables(description_parts(report))


@COMMANDS.register("datasets peek", order=30)
def peek(options: PeekOptions) -> None:
    """Show the first records of an epoch, as the network reads them.

    Images are written as a sheet, a PNG file, with their labels and boxes; vectors are printed as a
    table. Order and random transforms are those of training with the same seed and epoch.
    `normalize` is undone in pictures, so that colours look as they did.

    \b
    Examples:
      mxrun datasets peek digits_lenet
      mxrun datasets peek net.yaml --epoch 3 --count 64 --to epoch3.png
      mxrun datasets peek net.yaml --split eval --raw
      mxrun datasets peek net.yaml data.train.path=photos --seed 1
    """
    from mxrun.base.files import check_writable, write_bytes
    from mxrun.commands import datasets as command
    from mxrun.report.datasets import sample_parts
    from mxrun.report.notes import write_note
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.status import status

    check_writable(options.to)
    with status(f"reading {options.config}"):
        sections = command.open_sections(
            options.config, overrides=options.overrides, allow_plugins=options.allow_plugins
        )
        found = command.sample(sections, options)
    report = found.to_json()
    files = command.sheet_files(found, options.to)
    if files:
        from mxrun.report.image_sheet import image_sheet

        check_writable(*files.values())
        captions = [[record.label, f"record {record.number}"] for record in found.records]
        for name, file in files.items():
            boxes = [record.boxes for record in found.records]
            write_bytes(file, image_sheet(found.images[name], captions, boxes))
    report["files"] = {name: str(file) for name, file in files.items()}
    if options.json:
        write_json(report)
        return
    write_tables(sample_parts(report))
    for file in files.values():
        write_note(f"wrote {file}")


def _noted_sections(options: StatisticsOptions | CheckDataOptions) -> DataSections:
    """Open the sections of a config's data, and write their notes."""
    from mxrun.commands import datasets as command
    from mxrun.report.notes import write_notes
    from mxrun.report.status import status

    with status(f"reading {options.config}"):
        sections = command.open_sections(
            options.config, overrides=options.overrides, allow_plugins=options.allow_plugins
        )
    write_notes(sections.notes)
    return sections


@COMMANDS.register("datasets stats", order=40)
def stats(options: StatisticsOptions) -> None:
    """Count the records of each class, and measure sizes, mean and deviation of all values.

    Values are measured before transforms, those of bytes as 0..1. Every record counts alike,
    whatever its size. The last lines are transforms to copy into the config.

    \b
    Examples:
      mxrun datasets stats digits_lenet
      mxrun datasets stats net.yaml --split eval --json
    """
    from mxrun.commands import datasets as command
    from mxrun.report.datasets import statistics_parts
    from mxrun.report.infer import progress_callback
    from mxrun.report.result import write_json, write_tables

    sections = _noted_sections(options)
    with progress_callback(command.count_records(sections, options.split), True) as advance:
        report = command.statistics(sections, options, advance).to_json()
    if options.json:
        write_json(report)
    else:
        write_tables(statistics_parts(report))


@COMMANDS.register("datasets check", order=50)
def check(options: CheckDataOptions) -> None:
    """Read every record of a config's data, and list those that are damaged.

    Images are decoded, and the shape of every record after its transforms is compared with the
    network's inputs. Exit code 2 if a record cannot be used.

    \b
    Examples:
      mxrun datasets check net.yaml
      mxrun datasets check net.yaml data.train.path=photos --json
    """
    from mxrun.commands import datasets as command
    from mxrun.report.datasets import check_parts
    from mxrun.report.infer import progress_callback
    from mxrun.report.result import write_json, write_tables

    sections = _noted_sections(options)
    with progress_callback(command.count_records(sections), True) as advance:
        report = command.check(sections, options, advance).to_json()
    if options.json:
        write_json(report)
    else:
        write_tables(check_parts(report))
    if not report["passed"]:
        raise typer.Exit(_DAMAGED)


@COMMANDS.register("datasets fetch", order=60, foreign={"datasets fetch": "download"})
def fetch(options: FetchOptions) -> None:
    """Fetch the files of a well-known data set.

    A file gets its name when it is complete and has the published SHA-256 digest. Ctrl-C, a broken
    connection or a full disk keep what has arrived: the same command continues. Files that are
    there and right are not fetched again. `SOURCE.json` in the folder says where they came from.

    \b
    Examples:
      mxrun datasets fetch mnist
      mxrun datasets fetch cifar10 --to /data/cifar10
      mxrun datasets fetch fashion_mnist --from https://mirror.example/fashion/
      mxrun datasets fetch mnist --from ~/Downloads
    """
    from mxrun.commands import datasets as command
    from mxrun.report.datasets import fetch_parts, transfer_progress
    from mxrun.report.result import write_json, write_tables

    with transfer_progress(True) as progress:
        result = command.fetch(options, progress)
    report = result.to_json()
    if options.json:
        write_json(report)
    else:
        write_tables(fetch_parts(report))
