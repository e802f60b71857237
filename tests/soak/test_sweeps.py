"""Thousands of damaged configs, checkpoints and data files: each gives a result or one error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from commands import digests, mxrun, result
from damage import damage
from mutated_configs import survey
from PIL import Image

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.train.checkpoint import load_checkpoint
from mxrun.train.checkpoint_manager import newest_checkpoint

pytestmark = pytest.mark.soak

Record = Callable[[str, object], None]
CONFIGS, CHECKPOINTS, RESUMED, FILES = 3_000, 5_000, 40, 2_000
TRAIN = ("train", "digits_lenet", "threads=1", "train.epochs=3")


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_configs(seed: int, tmp_path: Path, record_property: Record) -> None:
    found = survey(tmp_path, CONFIGS // 2, seed)
    record_property("configs", CONFIGS // 2)
    record_property("planned", found.planned)


@pytest.fixture(scope="module")
def complete_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("complete")
    return folder / result(*TRAIN, cwd=folder)["run_dir"]


def test_damaged_checkpoints(complete_run: Path, tmp_path: Path, record_property: Record) -> None:
    run = Path(shutil.copytree(complete_run, tmp_path / "run"))
    newest = newest_checkpoint(run).checkpoint
    assert newest is not None
    files = {path: path.read_bytes() for path in sorted(newest.folder.iterdir())}
    draw, passed_over = random.Random(3), 0
    for number in range(CHECKPOINTS):
        path = [*files][number % len(files)]
        content = damage(files[path], draw)
        path.write_bytes(content)
        found = newest_checkpoint(run)
        assert found.checkpoint is not None
        used = found.checkpoint.folder == newest.folder
        assert used == (content == files[path]), (path, content)
        if not used:
            passed_over += 1
            with pytest.raises(UserError):
                load_checkpoint(newest.folder)
        assert path.read_bytes() == content
        path.write_bytes(files[path])
    record_property("damaged files", CHECKPOINTS)
    record_property("passed over", passed_over)


def test_runs_resumed_from_damaged_folders(
    complete_run: Path, tmp_path: Path, record_property: Record
) -> None:
    """Any file of a run, including metrics and config; a refused folder is not changed."""
    draw, codes = random.Random(4), []
    run = tmp_path / "runs/digits_lenet"
    for number in range(RESUMED):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(complete_run, run)
        (run / "summary.json").unlink()
        path = draw.choice([path for path in sorted(run.rglob("*")) if path.is_file()])
        path.write_bytes(damage(path.read_bytes(), draw))
        before = digests(run)
        done = mxrun(*TRAIN, "--resume", cwd=tmp_path)
        assert done.returncode in (0, 2), (number, path, done.stderr)
        assert "Traceback" not in done.stderr
        if done.returncode == 2:
            assert digests(run) == before
        codes.append(done.returncode)
    record_property("damaged runs", RESUMED)
    record_property("went on", codes.count(0))


PIXELS = np.linspace(0, 255, 24 * 32 * 3).astype(np.uint8).reshape(24, 32, 3)
IDX_IMAGES = bytes.fromhex("0000080300000005 0000001c0000001c") + bytes(range(196)) * 20
IDX_LABELS = bytes.fromhex("0000080100000005") + bytes(range(5))


def images(folder: Path, suffix: str) -> list[Path]:
    (folder / "a").mkdir()
    Image.fromarray(PIXELS).save(folder / "a" / f"0{suffix}")
    return [folder / "a" / f"0{suffix}"]


def table(folder: Path) -> list[Path]:
    rows = "".join(f"{n}.5,-{n}e-3,{n % 3}\n" for n in range(60))
    (folder / "t.csv").write_text(f"a,b,c\n{rows}")
    return [folder / "t.csv"]


def archive(folder: Path, save: Callable[..., None]) -> list[Path]:
    records = np.arange(6 * 20, dtype=np.uint8).reshape(6, 1, 4, 5)
    save(folder / "a.npz", data=records, label=np.arange(6) % 3)
    return [folder / "a.npz"]


def digits(folder: Path) -> list[Path]:
    contents = {"images-idx3": IDX_IMAGES, "labels-idx1": IDX_LABELS}
    paths = [folder / f"t10k-{name}-ubyte" for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.write_bytes(content)
    return paths


def cifar(folder: Path) -> list[Path]:
    record = bytes([3]) + bytes(n % 256 for n in range(3072))
    (folder / "test_batch.bin").write_bytes(record * 3)
    return [folder / "test_batch.bin"]


# Writer of the files, data set, split, and shape of a record.
KINDS: Mapping[str, tuple[Callable[[Path], list[Path]], str, str, tuple[int, ...]]] = {
    "csv": (table, "csv", "all", (2,)),
    "npz": (lambda folder: archive(folder, np.savez), "npz", "all", (1, 4, 5)),
    "packed npz": (lambda f: archive(f, np.savez_compressed), "npz", "all", (1, 4, 5)),
    "mnist": (digits, "mnist", "test", (1, 28, 28)),
    "cifar10": (cifar, "cifar10", "test", (3, 32, 32)),
    "png": (lambda folder: images(folder, ".png"), "image_folder", "all", (3, 24, 32)),
    "jpg": (lambda folder: images(folder, ".jpg"), "image_folder", "all", (3, 24, 32)),
    "bmp": (lambda folder: images(folder, ".bmp"), "image_folder", "all", (3, 24, 32)),
    "webp": (lambda folder: images(folder, ".webp"), "image_folder", "all", (3, 24, 32)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_data(kind: str, tmp_path: Path, record_property: Record) -> None:
    write, name, split, shape = KINDS[kind]
    files = {path: path.read_bytes() for path in write(tmp_path)}
    place = SourceLocation("c.yaml", 7, 3)
    path = next(iter(files)) if name in ("csv", "npz") else tmp_path
    options = {"path": str(path), **({"header": True} if name == "csv" else {})}
    inputs = {"data": TensorSpec(shape), "label": TensorSpec((), "int32")}

    def read() -> None:
        places = {"dataset": place, "path": place}
        dataset = open_datasets({"it": request_dataset(name, options, split, places)}, inputs)["it"]
        for field in dataset.lazy.values():
            for index in range(len(dataset)):
                field.record(index)

    read()
    draw, refused = random.Random(5), []
    for number in range(FILES):
        target = [*files][number % len(files)]
        content = damage(files[target], draw)
        target.write_bytes(content)
        try:
            read()
        except UserError as error:
            refused.append(str(error))
        assert target.read_bytes() == content
        target.write_bytes(files[target])
    record_property("damaged files", FILES)
    assert all(str(tmp_path) in text for text in refused)
    record_property("refused", len(refused))
