"""Train the configs of a JSON file, {name: config}, and print what their networks have read.

    python batch_runs.py CASES.json

The output is JSON, {fact: value}: for each config and number of workers what `seen.py` notes of
each batch, metrics and the records that could not be read; or the message of the error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxrun

WORKERS = (0, 2)
PLUGIN = Path(__file__).resolve().parent / "seen.py"
SEEN = Path("seen.txt")


def facts(name: str, config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the facts of a config, with each number of workers."""
    # A case may go on with its own run, at these steps.
    stops = config.pop("stops", [None])
    for workers in config.pop("workers", WORKERS):
        config |= {"name": "run", "plugins": [str(PLUGIN)]}
        config["data"]["workers"] = workers
        SEEN.unlink(missing_ok=True)
        key = f"{name}, workers={workers}"
        try:
            for index, stop in enumerate(stops):
                changes = {} if stop is None else {"train.max_steps": stop}
                model = mxrun.load(config, changes)
                resume = index > 0
                result = model.fit(progress=False, overwrite=not resume, resume=resume)
            metrics = (result.folder / "metrics.jsonl").read_text().splitlines()
            yield f"{key}: metrics", metrics
            refused = result.folder / "bad_records.jsonl"
            if refused.exists():
                text = refused.read_text().replace(str(Path.cwd()), "")
                yield f"{key}: records left out", sorted(text.splitlines())
        except mxrun.MxrunError as error:
            yield f"{key}: error", str(error).replace(str(Path.cwd()), "")
        yield f"{key}: batches", SEEN.read_text().splitlines() if SEEN.exists() else []


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    found = {key: value for name, config in cases.items() for key, value in facts(name, config)}
    print(json.dumps(found))
