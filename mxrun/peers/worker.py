"""Entry point of a helper process: `python worker.py FILE` serves the handlers of a module.

mxrun is not installed in a peer's environment, and another version of it must not be imported
there. A stub package takes its name; its only package, `mxrun.peers`, consists of this folder and
the module's.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path


def main(module: Path) -> None:
    """Redirect standard output, import the peer and serve until standard input ends."""
    folder = Path(__file__).resolve().parent
    sys.path = [entry for entry in sys.path if entry != str(folder)]
    _stand_in("mxrun")
    _stand_in("mxrun.peers", folder, module.resolve().parent)
    wire = importlib.import_module("mxrun.peers.wire")
    replies = wire.claim_standard_output()
    served = importlib.import_module(f"mxrun.peers.{module.stem}")
    wire.serve(sys.stdin.buffer, replies, served.HANDLERS, served.REJECTIONS)


def _stand_in(name: str, *folders: Path) -> None:
    """Register an empty package whose modules are in these folders."""
    package = types.ModuleType(name)
    package.__path__ = [str(folder) for folder in folders]
    sys.modules[name] = package


if __name__ == "__main__":
    main(Path(sys.argv[1]))
