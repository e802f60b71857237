"""Images per second of the data pipeline beside PyTorch's DataLoader and MXNet's ImageRecordIter.

    MXRUN_TORCH_PYTHON=... MXRUN_MXNET_PYTHON=... python tests/bench/bench_data.py --folder FOLDER

Makes 2,000 JPEG images of about 500 x 375 in FOLDER, once, and a RecordIO file of the same images.
Every side decodes, cuts out a random part, resizes it to 224, mirrors, normalises and makes batches
of 64. Each runs in a process of its own and they take turns, so that all see the same load of the
machine. Prints the median of each side at each number of workers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from side_process import SideProcess

SIDE = Path(__file__).with_name("data_side.py")
CLASSES = 10
QUALITY = 88


def draw_images(folder: Path, count: int) -> None:
    """Draw images with soft colours, edges and noise, of about 50 kB each."""
    random = np.random.default_rng(0)
    for number in range(count):
        width, height = int(random.integers(460, 541)), int(random.integers(345, 406))
        coarse = random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        pen = ImageDraw.Draw(image)
        for _ in range(12):
            x, y = int(random.integers(0, width)), int(random.integers(0, height))
            size = int(random.integers(8, 80))
            colour = tuple(random.integers(0, 256, 3).tolist())
            shape = pen.ellipse if random.random() < 0.5 else pen.rectangle
            shape((x - size, y - size, x + size, y + size), fill=colour)
        noisy = np.asarray(image) + random.normal(0, 6, (height, width, 3))
        target = folder / "images" / str(number % CLASSES)
        target.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(noisy, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(target / f"{number:05}.jpg", quality=QUALITY)


class Side(SideProcess):
    """Process of one library with a number of workers; `rates` holds images per second."""

    def __init__(self, interpreter: str, name: str, folder: Path, workers: int) -> None:
        command = [interpreter, str(SIDE), name, str(folder), str(workers)]
        super().__init__(name, command, {"OMP_NUM_THREADS": "1"})
        self.workers, self.rates = workers, list[float]()
        self.answer()

    def run(self) -> None:
        """Read one epoch."""
        self.rates.append(float(self.ask()))


def main() -> None:
    """Run all sides in turns and print their rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--only", nargs="+", default=["mxrun", "pytorch", "mxnet"])
    options = parser.parse_args()
    if not (options.folder / "images").exists():
        draw_images(options.folder, options.images)
    if not (options.folder / "images.rec").exists():
        pack = ["pack", options.folder / "images", options.folder / "images.rec"]
        subprocess.run([sys.executable, "-m", "mxrun", *map(str, pack)], check=True)
    interpreters = {
        "mxrun-folder": sys.executable,
        "mxrun-records": sys.executable,
        "pytorch": os.environ.get("MXRUN_TORCH_PYTHON"),
        "mxnet": os.environ.get("MXRUN_MXNET_PYTHON"),
    }
    sides = [
        Side(interpreter, name, options.folder, workers)
        for name, interpreter in interpreters.items()
        for workers in options.workers
        if interpreter and name.startswith(tuple(options.only))
    ]
    for _ in range(options.rounds):
        for side in sides:
            side.run()
    best = max(statistics.median(side.rates) for side in sides if side.name.startswith("mxrun"))
    print(f"{'side':16}{'workers':>8}{'images/s':>10}{'of mxrun best':>16}")
    for side in sides:
        rate = statistics.median(side.rates)
        print(f"{side.name:16}{side.workers:8}{rate:10.0f}{rate / best:16.2f}")
        side.close()


if __name__ == "__main__":
    main()
