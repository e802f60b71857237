"""Files are written in one form, `atomic_file`, but for those that say why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from syntax import nodes, syntax_tree

ROOT = Path(__file__).resolve().parents[2]
# Modules that open files for writing, and why they do.
WRITERS = {
    "mxrun/base/files.py": "the one form",
    "mxrun/base/cache_files.py": "a damaged file of a cache costs a second computation",
    "mxrun/train/checkpoint.py": "files of a folder that gets its name when all are durable",
    "mxrun/train/run_directory.py": "records are appended, and synced one by one",
    "mxrun/train/run_lock.py": "a lock is of no use after a loss of power",
    "mxrun/io/pack/growing_file.py": "a journal says which bytes are durable",
    "mxrun/io/fetch/files.py": "what has arrived is checked by its digest",
    "mxrun/__main__.py": "the null device",
    "mxrun/report/streams.py": "the null device",
    "mxrun/peers/wire.py": "standard output",
}
WRITING = re.compile(r"[wax]|r\+")
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT"}
FUNCTIONS = {"tempfile.mkstemp", "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move"}


def writes(node: ast.AST) -> bool:
    """Return whether an expression opens a file for writing, or is a flag that does."""
    if isinstance(node, ast.Attribute):
        return node.attr in FLAGS
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    name = called.rpartition(".")[2]
    if name in ("open", "fdopen"):
        modes = [each.value for each in node.args if isinstance(each, ast.Constant)]
        return any(isinstance(mode, str) and WRITING.match(mode) for mode in modes)
    is_method = isinstance(node.func, ast.Attribute) and name in ("write_text", "write_bytes")
    return is_method or called in FUNCTIONS


def test_files_are_opened_for_writing_in_few_modules() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("mxrun", "ops", "datasets")
        for path in (ROOT / folder).rglob("*.py")
        if any(map(writes, nodes(syntax_tree(path))))
    }
    assert found == WRITERS.keys()
