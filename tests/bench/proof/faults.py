"""Faults that the comparison of commits must report, each with the group of facts that shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Text of the product's sources, what takes its place, and the group that must differ."""

    name: str
    text: str
    replacement: str
    part: str
    group: str


FAULTS = (
    Fault(
        "a shifted batch",
        "        for write in self._writers:\n            write(start)\n",
        "        for write in self._writers:\n            write(max(start - 1, 0))\n",
        "batches",
        "arrays",
    ),
    Fault(
        "weights of padded rows of prefetched batches",
        "slot[finished.valid :] = 0.0",
        "slot[finished.valid :] = 1.0",
        "batches",
        "order",
    ),
    Fault(
        "weights of padded rows",
        "self._weight[valid:] = 0.0",
        "self._weight[valid:] = 1.0",
        "batches",
        "order",
    ),
    Fault(
        "the order of another epoch",
        'stream = f"shuffle/{epoch}"',
        'stream = f"shuffle/{epoch + 1}"',
        "batches",
        "order",
    ),
    Fault(
        "records carried over count as the next epoch's",
        "epochs[:carried] = epoch - 1",
        "epochs[:carried] = epoch",
        "batches",
        "order",
    ),
    Fault(
        "height and width of a crop exchanged",
        "        width = np.rint(np.sqrt(area * ratio)).astype(np.int64)\n",
        "        width = np.rint(np.sqrt(area * ratio)).astype(np.int64)\n"
        "        height, width = width, height\n",
        "batches",
        "transforms",
    ),
    Fault(
        "mixup in another order",
        "valid - end : valid - first][::-1]",
        "valid - end : valid - first]",
        "batches",
        "transforms",
    ),
    Fault(
        "a photo turned the other way",
        "2: _Turn(False, False, True)",
        "2: _Turn(False, True, True)",
        "batches",
        "images",
    ),
    Fault(
        "the mean in place of the median",
        '"median": float(np.median(known))',
        '"median": mean',
        "batches",
        "tables",
    ),
    Fault(
        "a dropped weight decay of a program's optimizers",
        '"wd": optimizer.wd * decay',
        '"wd": 0.0 * decay',
        "faces",
        "updates",
    ),
    Fault(
        "a dropped multiplier of a program's optimizer",
        "rate = self._multiplier(self.lr_mult, index)",
        "rate = 1.0",
        "faces",
        "updates",
    ),
    Fault(
        "gradients of arguments that nobody asked for",
        'given.get(name, "null")',
        'given.get(name, "write")',
        "faces",
        "symbols",
    ),
    Fault(
        "the same numbers drawn twice",
        "radius = np.sqrt(-2.0 * np.log1p(-units[:pairs]))",
        "radius = np.sqrt(-2.0 * np.log1p(-units[pairs:]))",
        "faces",
        "arrays",
    ),
    Fault(
        "a dropped weight decay in training",
        "    decay = multipliers.weight_decay\n",
        "    decay = 0.0\n",
        "faces",
        "models",
    ),
    Fault(
        "two options of infer exchanged",
        "options.checkpoint, samples, options.allow_changes)",
        "options.checkpoint, samples, options.allow_plugins)",
        "calls",
        "damaged runs",
    ),
    Fault(
        "an option of the text left out",
        "TokenSampling(temperature, options.top_k, options.top_p)",
        "TokenSampling(temperature, options.top_k, None)",
        "calls",
        "networks of texts",
    ),
    Fault(
        "notes of an evaluation lost",
        "    write_notes(prepared.notes)\n",
        "",
        "calls",
        "networks of tables",
    ),
    Fault(
        "another exit code",
        "_ABOVE = 1\n",
        "_ABOVE = 3\n",
        "calls",
        "plans and times",
    ),
    Fault(
        "another default",
        "minimum=1, maximum=1024)] = 16",
        "minimum=1, maximum=1024)] = 5",
        "calls",
        "help texts",
    ),
    Fault(
        "words of a help text lost",
        "Continue the run of the same name, to the same bits.",
        "Continue the run of the same name.",
        "calls",
        "help texts",
    ),
    Fault(
        "a key of JSON renamed",
        '"parameters": run.parameters',
        '"variables": run.parameters',
        "calls",
        "train",
    ),
    Fault(
        "a hint lost",
        ', hint="train the run first"',
        "",
        "calls",
        "damaged runs",
    ),
    Fault(
        "rows in another order",
        "key=lambda each: each[0], reverse=True",
        "key=lambda each: each[0]",
        "calls",
        "train",
    ),
    Fault(
        "a wrong column of an error",
        '"column": place.column',
        '"column": place.line',
        "calls",
        "check",
    ),
)
