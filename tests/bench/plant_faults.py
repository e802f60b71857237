"""Plant faults in the product one after the other; `compare_commits.py` must report each.

    python tests/bench/plant_faults.py
    python tests/bench/plant_faults.py --only decay

A fault is a text of the product's sources, wherever it stands, and what takes its place. The group
of facts that must differ is computed for the working tree with and without it. Exits with 1 if a
fault is not reported, or if its text is no longer there. Not a test.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from compare_commits import PARTS
from proof.differences import differences
from proof.faults import FAULTS, Fault
from proof.installation import Facts, Installation, installed, sources_of_working_tree

PRODUCT = ("mxrun", "ops", "datasets")


def plant(fault: Fault, sources: Path) -> tuple[Path, str] | None:
    """Plant a fault in sources; return the file with its text of before.

    None if the fault's text is not there exactly once.
    """
    files = [path for folder in PRODUCT for path in sorted((sources / folder).rglob("*.py"))]
    counts = {path: path.read_text().count(fault.text) for path in files}
    if sum(counts.values()) != 1:
        return None
    (path,) = (path for path, count in counts.items() if count)
    before = path.read_text()
    path.write_text(before.replace(fault.text, fault.replacement))
    return path, before


def install_again(mxrun: Installation, sources: Path) -> None:
    """Install changed sources over those in an environment."""
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(sources)]
    subprocess.run([str(mxrun.folder / "bin" / "python"), *pip], check=True)


def main() -> int:
    """Plant, compare, print; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="faults whose name matches this pattern")
    parser.add_argument("--threads", type=int, default=2, help="how many may compute")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if re.search(options.only, fault.name)]
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sources").mkdir()
        sources = sources_of_working_tree(folder / "sources")
        whole = installed("whole", sources, folder / "whole", options.threads)
        faulty = installed("faulty", sources, folder / "faulty", options.threads)
        known: dict[tuple[str, str], Facts] = {}
        for fault in chosen:
            planted = plant(fault, sources)
            if planted is None:
                missed += 1
                print(f"{fault.name:50} IS NOT THERE: its text", flush=True)
                continue
            install_again(faulty, sources)
            group = (fault.part, fault.group)
            if group not in known:
                known[group] = PARTS[fault.part].facts(whole, fault.group)
            found = list(differences(known[group], PARTS[fault.part].facts(faulty, fault.group)))
            path, before = planted
            path.write_text(before)
            missed += not found
            outcome = found[0][:200] if found else "NOT REPORTED"
            print(f"{fault.name:50} {len(found):3} differ: {outcome}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults reported")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
