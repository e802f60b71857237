"""Structure of the sources: allowed imports, packages that ship, lengths of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from syntax import nodes, syntax_tree

ROOT = Path(__file__).resolve().parents[2]

# Each layer and the layers it may import; everything else is forbidden.
MAY_IMPORT = {
    "base": "",
    "options": "base",
    "config": "base",
    "codegen": "base",
    "runtime": "base codegen",
    "operator": "base codegen runtime",
    "graph": "base operator",
    "passes": "base operator graph",
    "planner": "base codegen operator graph passes",
    "compiler": "base operator graph passes planner",
    "device": "base codegen runtime operator",
    # Provider files import their device besides.
    "ops": "base codegen operator",
    "contract": "base runtime operator graph device",
    "executor": "base runtime operator graph planner compiler device",
    "imperative": "base runtime operator graph compiler executor device",
    "kvstore": "base runtime operator device imperative",
    "io": "base codegen runtime",
    "datasets": "base io",
    "convert": "base operator graph",
    "peers": "base operator graph",
    "train": "base codegen runtime operator graph compiler executor io kvstore",
    "frontend": "base config operator graph io train convert",
    "report": "base runtime graph planner train",
    "library": "base ops",
    # Shared by the commands and the Python face: each room may import those before it.
    "preparation": (
        "base options config codegen runtime operator graph passes planner compiler device "
        "executor io train frontend report library"
    ),
    "run": (
        "base options config runtime graph planner device executor io train frontend library "
        "preparation"
    ),
    "inference": (
        "base options config runtime graph compiler executor io convert train frontend "
        "preparation run"
    ),
    "generation": ("base runtime graph passes planner compiler io frontend preparation inference"),
    "survey": "base options config runtime io datasets frontend report library preparation",
    "inspection": (
        "base config runtime operator graph planner compiler executor io peers train frontend "
        "library preparation run inference"
    ),
    "api": (
        "base options config graph imperative kvstore io train frontend report library "
        "preparation run inference generation inspection commands"
    ),
    "commands": (
        "base options config codegen runtime operator graph passes planner compiler device "
        "contract executor io convert peers train frontend library preparation run inference "
        "generation survey inspection"
    ),
    # library: main.py turns exceptions of plugins into errors for the user, wherever they occur.
    "cli": "base options commands report library",
    "packaging": "base graph imperative operator library",
    # By name, when one of its names is first used.
    "__init__": "api",
    "__main__": "cli",
}
# Devices whose libraries provide kernels, by the first letters of the names of provider files.
PROVIDED = {"onednn": "mxrun.device.cpu.", "cudnn": "mxrun.device.cuda.cudnn"}
# Modules of `device` that know one machine's memory, and the layers outside of it that may import
# them: the checker plants its own memory.
OWN_TO_DEVICES = {
    "mxrun.device.cpu": (),
    "mxrun.device.cuda": (),
    "mxrun.device.reference": (),
    "mxrun.device.host_device": (),
    "mxrun.device.host_memory": ("contract",),
}
FOLDERS = {"mxrun": "mxrun", "mxrun.ops": "ops", "mxrun.datasets": "datasets"}


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts))] = path
    return found


MODULES = modules()


def is_module(name: str) -> bool:
    return name in MODULES or f"{name}.__init__" in MODULES


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] else "__init__"


@cache
def imported(path: Path) -> set[str]:
    """Return the modules of mxrun that a file imports anywhere."""
    names = set()
    for node in nodes(syntax_tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module == "mxrun":
                names |= inner
            else:
                # A name may be that of a module: `from mxrun.codegen import jit`.
                names |= {node.module, *filter(is_module, inner)}
    return {name for name in names if name == "mxrun" or name.startswith("mxrun.")}


def forbidden_imports(module: str) -> Iterator[str]:
    """Yield the imports of a module that its layer may not have."""
    layer = layer_of(module)
    allowed = {layer, "__init__", "__version__", *MAY_IMPORT[layer].split()}
    for name in imported(MODULES[module]):
        provided = provided_to(module)
        if provided is not None and name.startswith(provided):
            continue
        parts = [part for part in OWN_TO_DEVICES if name == part or name.startswith(f"{part}.")]
        strange = any(layer not in ("device", *OWN_TO_DEVICES[part]) for part in parts)
        if strange or layer_of(name) not in allowed:
            yield f"{module} imports {name}"


def test_imports_follow_the_layers() -> None:
    assert [each for module in MODULES for each in forbidden_imports(module)] == []


def provided_to(module: str) -> str | None:
    """Return the modules of a device that a file of operators takes its library's kernels from."""
    name = module.rpartition(".")[2]
    found = (device for library, device in PROVIDED.items() if name.startswith(library))
    return next(found, None) if layer_of(module) == "ops" else None


def test_provider_files_need_their_device() -> None:
    providers = {module: provided_to(module) for module in MODULES}
    for library, device in PROVIDED.items():
        own = [module for module, provided in providers.items() if provided == device]
        assert len(own) > 3
        for module in own:
            # A few only name the classes of the library's file beside the families.
            needed = (device, f"mxrun.ops.{library}")
            assert any(name.startswith(needed) for name in imported(MODULES[module])), module


def test_imports_have_no_cycles() -> None:
    edges = {module: {*filter(is_module, imported(path))} for module, path in MODULES.items()}
    edges = {
        module: {name if name in MODULES else f"{name}.__init__" for name in names} - {module}
        for module, names in edges.items()
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module in done:
            return
        for name in sorted(edges.get(module, ())):
            # An import inside a function runs late and cannot close a cycle at import time, but
            # none is needed, so the same rule applies.
            visit(name, (*path, module))
        done.add(module)

    for module in MODULES:
        visit(module, ())


def test_package_list_is_complete() -> None:
    block = re.search(r"^packages = (\[.*?^\])", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    assert block is not None
    listed = set(ast.literal_eval(block[1]))
    found = {"mxrun.configs"}
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join((package, *path.parent.relative_to(ROOT / folder).parts)))
    assert listed == found


def test_top_level_is_fixed() -> None:
    allowed = {
        "pyproject.toml",
        "mxrun",
        "configs",
        "ops",
        "datasets",
        "tests",
        "README.md",
        "LICENSE",
    }
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are no git repository, which would say what belongs to them")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {name.partition("/")[0] for name in listed.stdout.split("\0") if name}
    assert {name for name in tracked if not name.startswith(".")} == allowed


def test_files_stay_short() -> None:
    sizes = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    assert {module: size for module, size in sizes.items() if size > 500} == {}


@pytest.mark.parametrize("name", ["llvmlite", "cupy", "torch", "matplotlib", "safetensors"])
def test_cli_does_not_import(name: str) -> None:
    script = f"import sys, mxrun.cli.main; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
