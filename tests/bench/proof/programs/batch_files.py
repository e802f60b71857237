"""Write small data files of every format into the working folder: the same bytes in every run.

python batch_files.py
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

RECORDS = 77
KINDS = ("hat", "jar", "kite")
DRAWS = np.random.default_rng(7)
LABELS = DRAWS.integers(0, len(KINDS), RECORDS)
PIXELS = DRAWS.integers(0, 256, (RECORDS, 3, 12, 10)).astype(np.uint8)
NUMBERS = DRAWS.normal(0, 3, (RECORDS, 6)).astype(np.float32)
_ORIENTATION = 0x0112


def tables() -> None:
    """Write tables with and without words and a header, in several encodings and files."""
    ports = ("Åbo", "Bergen", "", "Cádiz")
    rows = [
        (
            f"{value[0]:.3f}" if index % 9 else "",
            index % 4 + 1,
            ports[index % 4],
            f"20{index % 23:02}-0{index % 9 + 1}-1{index % 8}",
            f'"nobody, {index}"',
            f"{abs(value[1]):.2f}",
            KINDS[label],
        )
        for index, (value, label) in enumerate(zip(NUMBERS, LABELS, strict=True))
    ]
    header = ("size", "level", "port", "day", "name", "fare", "kind")
    text = "".join(",".join(map(str, row)) + "\n" for row in (header, *rows))
    Path("table.csv").write_text(text)
    Path("table16.csv").write_text(text, encoding="utf-16")
    Path("table_cp1252.csv").write_text(text, encoding="cp1252")
    numbers = [[*map(repr, map(float, row)), str(label)] for row, label in _numbered()]
    Path("numbers.tsv").write_text(_joined(numbers, "\t"))
    Path("numbers.txt").write_text(_joined(numbers, "|"))
    with gzip.GzipFile("numbers.csv.gz", "wb", mtime=0) as file:
        file.write(_joined(numbers, ",").encode())
    for part in range(2):
        Path(f"part-{part}.csv").write_text(_joined(numbers[40 * part : 40 * part + 40], ";"))
    lines = [
        f"{label + 1} " + " ".join(f"{i + 1}:{x!r}" for i, x in enumerate(map(float, row)) if i % 3)
        for row, label in _numbered()
    ]
    Path("rows.svm").write_text("\n".join(lines))
    Path("several.svm").write_text(
        "\n".join(f"{'a,b' if i % 2 else 'c'} 0:{i / 7} 5:1" for i in range(RECORDS))
    )


def _numbered() -> zip[tuple[Any, Any]]:
    return zip(NUMBERS, LABELS, strict=True)


def _joined(rows: Sequence[Sequence[str]], separator: str) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


def arrays() -> None:
    """Write archives and folders of arrays."""
    words = np.array(KINDS)[LABELS]
    np.savez("numbers.npz", data=NUMBERS, label=LABELS)
    np.savez_compressed("words.npz", table=NUMBERS.astype(np.float64), kind=words)
    np.savez("pixels.npz", data=PIXELS, label=LABELS)
    np.savez("deep.npz", data=PIXELS.astype(np.uint16) * 257, label=NUMBERS[:, :2])
    for part in range(2):
        chosen = slice(40 * part, 40 * part + 40)
        np.savez(f"shard-{part}.npz", data=PIXELS[chosen], label=LABELS[chosen])
    Path("arrays").mkdir()
    np.save("arrays/data.npy", np.asfortranarray(NUMBERS.astype(np.float16)))
    np.save("arrays/label.npy", LABELS.astype(np.uint8))
    np.save("arrays/pixels.npy", PIXELS[:, :1])
    np.save("arrays/mask.npy", NUMBERS[:, :3] > 0)


def images() -> None:
    """Write photos of several forms and sizes, lists of them, and shards of tar members."""
    listed, numbered, whole, boxes = [], [], [], []
    members: list[tuple[str, bytes]] = []
    for index, label in enumerate(LABELS):
        name, content = photo(index, int(label))
        path = Path("photos", KINDS[label], name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        file = f"{KINDS[label]}/{name}"
        other = KINDS[(label + 1) % 3] if index % 3 else KINDS[label]
        listed.append(f"{file},{KINDS[label]}|{other}" if index % 2 else f"{file},{KINDS[label]}")
        numbered.append(f"{index}\t{label}\t{index / 8}\t{file}")
        whole.append(f"{index}\t{label}\t{index / 8}\tphotos/{file}")
        left, top = (index % 5) / 10, (index % 7) / 10
        box = f"{label}\t{left}\t{top}\t{left + 0.4}\t{top + 0.3}"
        boxes.append(f"{index}\t2\t5\t{box}\t{file}")
        stem = f"{index:04}"
        members.append((f"{stem}{path.suffix}", content))
        members.append((f"{stem}.cls", str(label).encode()))
        text = {"annotation": {"kind": KINDS[label]}, "size": index}
        members.append((f"{stem}.json", json.dumps(text).encode()))
    Path("photos.csv").write_text("\n".join(["file,label", *listed]))
    Path("photos.lst").write_text("\n".join(numbered))
    Path("whole.lst").write_text("\n".join(whole))
    Path("boxes.lst").write_text("\n".join(boxes))
    for part in range(2):
        half = members[3 * 40 * part : 3 * 40 * (part + 1)]
        _write_tar(Path(f"shard-{part}.tar"), half)
    _write_tar(Path("raw.tar"), [each for i in range(RECORDS) for each in _raw_members(i)])
    damaged = Path("damaged")
    for path in sorted(Path("photos").rglob("*.*")):
        to = damaged / path.relative_to("photos")
        to.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        to.write_bytes(content[: len(content) // 2] if path.stem[-1] == "4" else content)


def photo(index: int, label: int) -> tuple[str, bytes]:
    """Name and bytes of an image: JPEG or PNG, some grey, turned, CMYK, with a palette or alpha."""
    height, width = 40 + 3 * (index % 5), 36 + 5 * (index % 4)
    draws = np.random.default_rng(index)
    coarse = draws.integers(0, 256, (8, 8, 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
    form = index % 8
    mode = {3: "L", 4: "RGBA", 5: "P", 6: "CMYK"}.get(form, "RGB")
    suffix = "png" if form in (2, 4, 5) else "jpg"
    exif = Image.Exif()
    if form in (0, 2, 7):
        exif[_ORIENTATION] = index % 8 + 1 if form else 1 + index // 8 % 8
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, {"png": "PNG", "jpg": "JPEG"}[suffix], exif=exif)
    return f"{index:03}.{suffix}", buffer.getvalue()


def small_images() -> None:
    """Write images of one size, and a shard with damaged ones."""
    members = []
    for index, label in enumerate(LABELS):
        path = Path("same", KINDS[label], f"{index:03}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[index].transpose(1, 2, 0)).save(path)
        name, content = photo(index, int(label))
        suffix = name.rpartition(".")[2]
        cut = len(content) // 2 if index % 10 == 4 else len(content)
        members.append((f"{index:04}.{suffix}", content[:cut]))
        members.append((f"{index:04}.cls", str(label).encode()))
    _write_tar(Path("damaged.tar"), members)


def _raw_members(index: int) -> list[tuple[str, bytes]]:
    buffer = io.BytesIO()
    np.save(buffer, PIXELS[index])
    numbers = " ".join(map(str, NUMBERS[index, :2].tolist()))
    return [(f"{index:03}.npy", buffer.getvalue()), (f"{index:03}.cls", numbers.encode())]


def _write_tar(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def published() -> None:
    """Write files of the forms of MNIST and CIFAR."""
    Path("mnist").mkdir()
    for part, count in (("train", RECORDS), ("t10k", 20)):
        pixels = DRAWS.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        label = (np.arange(count) * 7 % 10).astype(np.uint8)
        for name, array in ((f"{part}-images-idx3", pixels), (f"{part}-labels-idx1", label)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            content = head + array.tobytes()
            if part == "train":
                Path(f"mnist/{name}-ubyte").write_bytes(content)
            else:
                Path(f"mnist/{name}-ubyte.gz").write_bytes(gzip.compress(content, mtime=0))
    Path("cifar10").mkdir()
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        Path(f"cifar10/{name}.bin").write_bytes(_cifar(16, 1, number))
    Path("cifar100").mkdir()
    Path("cifar100/train.bin").write_bytes(_cifar(RECORDS, 2, 8))
    Path("cifar100/test.bin").write_bytes(_cifar(20, 2, 9))
    for kind, count in (("fine", 100), ("coarse", 20)):
        names = "".join(f"{kind}{i}\n" for i in range(count))
        Path(f"cifar100/{kind}_label_names.txt").write_text(names)


def _cifar(records: int, labels: int, seed: int) -> bytes:
    draws = np.random.default_rng(seed)
    rows = draws.integers(0, 256, (records, labels + 3072)).astype(np.uint8)
    rows[:, labels - 1] = np.arange(records) % (10 if labels == 1 else 100)
    if labels == 2:
        rows[:, 0] = np.arange(records) % 20
    return rows.tobytes()


def texts() -> None:
    """Write a text, and texts with labels in several forms."""
    first = ["the", "old", "Captain", "saw,", "heard;", "ça", "là"]
    words = [*first, "été", "sun's", "wind", "rain.", "Storm", "map"]
    lines, labels = [], []
    for index in range(RECORDS):
        chosen = DRAWS.choice(words, 3 + index % 11)
        lines.append(" ".join(chosen))
        labels.append(KINDS[index % 3])
    Path("book.txt").write_text("\n".join(lines) + "\n")
    Path("book2.txt").write_bytes("\r\n".join(lines[:30]).encode())
    Path("tiny").mkdir()
    Path("tiny/input.txt").write_text("\n".join(lines))
    pairs = list(zip(labels, lines, strict=True))
    Path("lines.txt").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    several = "".join(f"{a}{'|hat' if i % 2 else ''}~{b}\r\n" for i, (a, b) in enumerate(pairs))
    Path("several.txt").write_bytes(several.encode("cp1252"))
    table = "".join(f'{i};"{b}";{a}\n' for i, (a, b) in enumerate(pairs))
    Path("reviews.csv").write_text("number;body;stars\n" + table)
    objects = [json.dumps({"label": a, "text": b}) for a, b in pairs]
    Path("reviews.jsonl").write_text("\n".join(objects))


def parquet() -> None:
    """Write Parquet and Arrow files, if pyarrow is there."""
    try:
        import pyarrow as arrow
        from pyarrow import feather
        from pyarrow import parquet as files
    except ModuleNotFoundError:
        return
    photos = [{"bytes": photo(i, int(label))[1], "path": None} for i, label in enumerate(LABELS)]
    columns = {
        "image": photos,
        "list": arrow.array(NUMBERS.astype(np.float64).tolist()),
        "kind": [KINDS[label] for label in LABELS],
        "first": NUMBERS[:, 0].tolist(),
        "second": list(range(RECORDS)),
    }
    table = arrow.table(columns)
    files.write_table(table, "rows.parquet", row_group_size=10)
    feather.write_feather(table, "rows.arrow", compression="uncompressed")


if __name__ == "__main__":
    for write in (tables, arrays, images, small_images, published, texts, parquet):
        write()
