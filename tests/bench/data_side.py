"""One library's side of `bench_data.py`: reads batches of random crops and reports its speed.

    python data_side.py LIBRARY FOLDER WORKERS

LIBRARY: mxrun-folder, mxrun-records, pytorch or mxnet. FOLDER holds `images/CLASS/*.jpg` and
`images.rec` with `images.idx`. Every line read from standard input starts one epoch; its number of
images per second is the answer.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SIDE, BATCH = 224, 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Batches made ahead by all libraries.
PREFETCH = 4


def mxrun_folder(folder: Path, workers: int) -> Callable[[int], Iterator[int]]:
    return _mxrun("image_folder", folder / "images", workers)


def mxrun_records(folder: Path, workers: int) -> Callable[[int], Iterator[int]]:
    return _mxrun("recordio", folder / "images.rec", workers)


def _mxrun(dataset: str, path: Path, workers: int) -> Callable[[int], Iterator[int]]:
    import numpy as np

    from mxrun import library
    from mxrun.base.tensor import TensorSpec
    from mxrun.io.dataset.request import open_datasets, request_dataset
    from mxrun.io.loading.iterator import batched
    from mxrun.io.loading.open import open_iterator
    from mxrun.io.loading.staging import Staging
    from mxrun.io.transforms.base import TRANSFORMS
    from mxrun.io.transforms.pipeline import pipeline

    library.load()
    chain = [
        TRANSFORMS.get("random_resized_crop")(size=SIDE),
        TRANSFORMS.get("flip")(),
        TRANSFORMS.get("normalize")(mean=MEAN, std=STD),
    ]
    inputs = {"data": TensorSpec((3, SIDE, SIDE)), "label": TensorSpec((), "int32")}
    request = request_dataset(dataset, {"path": str(path)}, None)
    request = dataclasses.replace(request, pipeline=pipeline([(each, None) for each in chain]))
    specs = batched(inputs, BATCH)
    memory = [
        {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        for _ in range(PREFETCH + 1)
    ]
    iterator = open_iterator(
        open_datasets({"train": request}, inputs)["train"],
        BATCH,
        shuffle=True,
        last_batch="discard",
        workers=workers,
        staging=Staging(memory[:PREFETCH]),
    )

    def epoch(number: int) -> Iterator[int]:
        iterator.reset(number)
        while batch := iterator.next_into(memory[PREFETCH]):
            yield batch.valid

    return epoch


def pytorch(folder: Path, workers: int) -> Callable[[int], Iterator[int]]:
    """Pillow's decoder and the operations of torchvision's transforms, in worker processes."""
    import numpy as np
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))

    class Images(Dataset[Any]):
        def __init__(self) -> None:
            self.files = sorted((folder / "images").glob("*/*.jpg"))

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> Any:
            file = self.files[index]
            image = Image.open(file).convert("RGB")
            left, top, width, height = _crop(*image.size)
            image = image.crop((left, top, left + width, top + height))
            image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            if random.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
            return pixels.float().div_(255).sub_(mean).div_(std), int(file.parent.name)

    loader = DataLoader(
        Images(),
        BATCH,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=workers > 0,
        prefetch_factor=max(1, PREFETCH // workers) if workers else None,
    )

    def epoch(number: int) -> Iterator[int]:
        for data, _ in loader:
            assert data.shape == (BATCH, 3, SIDE, SIDE)
            yield BATCH

    return epoch


def _crop(width: int, height: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a crop of random area and ratio."""
    for _ in range(10):
        area = random.uniform(0.08, 1) * width * height
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    return 0, 0, width, height


def mxnet(folder: Path, workers: int) -> Callable[[int], Iterator[int]]:
    import numpy

    # MXNet 1.9.1 uses a name that NumPy 1.24 has removed.
    if not hasattr(numpy, "bool"):
        numpy.bool = bool  # type: ignore[attr-defined]
    import mxnet as mx

    iterator = mx.io.ImageRecordIter(
        path_imgrec=str(folder / "images.rec"),
        path_imgidx=str(folder / "images.idx"),
        data_shape=(3, SIDE, SIDE),
        batch_size=BATCH,
        shuffle=True,
        random_resized_crop=True,
        min_random_area=0.08,
        max_random_area=1.0,
        min_aspect_ratio=3 / 4,
        max_aspect_ratio=4 / 3,
        rand_mirror=True,
        mean_r=255 * MEAN[0],
        mean_g=255 * MEAN[1],
        mean_b=255 * MEAN[2],
        std_r=255 * STD[0],
        std_g=255 * STD[1],
        std_b=255 * STD[2],
        preprocess_threads=workers,
        prefetch_buffer=PREFETCH,
        round_batch=False,
    )

    def epoch(number: int) -> Iterator[int]:
        iterator.reset()
        for batch in iterator:
            batch.data[0].wait_to_read()
            yield BATCH - batch.pad

    return epoch


SIDES = {
    "mxrun-folder": mxrun_folder,
    "mxrun-records": mxrun_records,
    "pytorch": pytorch,
    "mxnet": mxnet,
}


def main() -> None:
    name, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    epoch = SIDES[name](folder, workers)
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        batches = epoch(number)
        # Time from the first batch: starting worker processes is not part of the speed.
        next(batches)
        start = time.perf_counter()
        images = sum(batches)
        print(images / (time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()
