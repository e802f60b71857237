"""`mxrun` with one more published data set, `tiny`: one file of 300,000 bytes.

python tiny_dataset.py URL ARGUMENT...
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from mxrun.cli.main import run
from mxrun.io.fetch import published

CONTENT = bytes(number * 7 % 251 for number in range(300_000))


def main() -> int:
    url, *arguments = sys.argv[1:]
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = published.PublishedFile("tiny.bin", (f"{url}/",), len(CONTENT), digest)
    registry: Any = published.PUBLISHED
    registry["tiny"] = published.PublishedDataset(
        "tiny", "Tiny", (file,), "https://example.org", "none", "a test", "digits_lenet"
    )
    sys.argv = ["mxrun", *arguments]
    return run()


if __name__ == "__main__":
    sys.exit(main())
