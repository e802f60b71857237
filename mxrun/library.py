"""Loading of the operator library and users' plugin files.

Only this module names the library's package. A plugin is one Python file that registers operators
like the library's own files. It is a module of its own and must not import neighbouring files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, MxrunError, OperatorRaised, SourceLocation, UserError
from mxrun.base.registry import Registry


@cache
def load() -> None:
    """Import every module of `mxrun.ops`; without, one is imported when it is looked up."""
    operators = importlib.import_module("mxrun.ops")
    for module in pkgutil.walk_packages(operators.__path__, "mxrun.ops."):
        importlib.import_module(module.name)


@dataclass(frozen=True)
class Plugin:
    """Plugin file: its path, the SHA-256 of its content, and the name of its module."""

    path: str
    sha256: str
    module: str


# By path. A file with the content of another one has its module.
_PLUGINS: dict[str, Plugin] = {}
# Called before a plugin runs.
BEFORE_PLUGINS: list[Callable[[], None]] = []


def load_plugin(
    path: str,
    named_at: SourceLocation | None = None,
    permit: Callable[[Plugin], None] = lambda plugin: None,
) -> Plugin:
    """Run a plugin file, whose decorators register its operators; once for each content.

    named_at: position of the file's name in a config. permit: called before exactly these bytes
    run; raises if they must not. Raises UserError, with the line if known, for a file that cannot
    be read, is not Python, raises, or registers a name that is taken.
    """
    load()
    path = os.path.abspath(path)
    content = _content(path, named_at)
    digest = hashlib.sha256(content).hexdigest()
    if path in _PLUGINS and _PLUGINS[path].sha256 != digest:
        problem = f"the plugin {path} has changed since this process loaded it"
        raise UserError(Diagnostic(problem, named_at, hint="start a new process"))
    plugin = next((each for each in _PLUGINS.values() if each.sha256 == digest), None)
    if plugin is None:
        module = ModuleType(f"mxrun_plugin_{digest[:16]}")
        module.__file__ = path
        plugin = Plugin(path, digest, module.__name__)
        permit(plugin)
        for prepare in BEFORE_PLUGINS:
            prepare()
        _run(content, module, path)
    _PLUGINS[path] = plugin
    return plugin


def loaded_plugin(path: str) -> Plugin:
    """Return a plugin that this process has loaded; nothing is read or run again."""
    return _PLUGINS[os.path.abspath(path)]


def load_unchanged(path: str, sha256: str) -> None:
    """Run a plugin file without the operator library, for a process that helps another one.

    Raises UserError if its content is not that with the hash `sha256`.
    """
    content = _content(path, None)
    if hashlib.sha256(content).hexdigest() != sha256:
        problem = f"the plugin {path} has changed since the run loaded it"
        raise UserError(Diagnostic(problem, hint="start the run again"))
    module = ModuleType(f"mxrun_plugin_{sha256[:16]}")
    module.__file__ = path
    _run(content, module, path)


def _content(path: str, named_at: SourceLocation | None) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            Diagnostic(
                f"cannot read the plugin {path}: {reason}",
                named_at,
                "a Python file that registers operators",
                hint="a path in a config is relative to the folder of that config",
            )
        ) from error


def _run(content: bytes, module: ModuleType, path: str) -> None:
    """Execute exactly the bytes that were read.

    If they raise, the module is removed and its registrations are undone.
    """
    try:
        code = compile(content, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None), getattr(error, "offset", None)
        problem = f"the plugin is not valid Python: {getattr(error, 'msg', error)}"
        place = SourceLocation(path, max(line or 1, 1), max(column or 1, 1))
        raise UserError(Diagnostic(problem, place)) from error
    # Source of native functions and of tracebacks, whatever happens to the file.
    lines = importlib.util.decode_source(content).splitlines(keepends=True)
    linecache.cache[path] = (len(content), None, lines, path)
    sys.modules[module.__name__] = module
    try:
        with Registry.all_or_nothing():
            exec(code, module.__dict__)
    # User code may raise anything.
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise _raised(error, path) from error


@contextmanager
def plugin_errors() -> Iterator[None]:
    """Context manager that turns exceptions of plugins' code into UserErrors at their lines."""
    try:
        yield
    # A plugin is the user's code and may raise any exception.
    except Exception as error:
        failure = None if isinstance(error, MxrunError) else _plugin_failure(error)
        if failure is None:
            raise
        raise failure from error


def _plugin_failure(error: Exception) -> UserError | None:
    """Return the error for an exception raised by a plugin's operator; None for any other."""
    paths = {plugin.path for plugin in _PLUGINS.values()}
    whose = ""
    raised: BaseException = error
    if isinstance(error, OperatorRaised) and error.__cause__ is not None:
        whose, raised = f", while running {error}", error.__cause__
    frames = traceback.extract_tb(raised.__traceback__)
    found = next((frame for frame in reversed(frames) if frame.filename in paths), None)
    if found is None:
        return None
    problem = f"the plugin's {found.name} raised {_described(raised)}{whose}"
    hint = ""
    if isinstance(error, OperatorRaised):
        hint = "`mxrun check-op FILE.py:NAME` tries an operator by itself"
    return UserError(
        Diagnostic(problem, SourceLocation(found.filename, found.lineno or 1, 1), hint=hint)
    )


def _raised(error: BaseException, path: str) -> UserError:
    """Return the error for a plugin that cannot be loaded, at the plugin's line that raised.

    UserErrors keep their text and get the plugin's line if they have no position.
    """
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
    place = SourceLocation(path, line or 1, 1)
    if isinstance(error, UserError):
        return UserError(replace(each, place=each.place or place) for each in error.diagnostics)
    problem = f"the plugin cannot be loaded: {_described(error)}"
    return UserError(Diagnostic(problem, place, hint=_hint(error)))


def _described(error: BaseException) -> str:
    """Return an exception on one line: its type, unless it is mxrun's own, and its message."""
    kind = "" if isinstance(error, MxrunError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}".rstrip(": ")


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name!r}; a plugin is one file and cannot import its neighbours"
    if "registered twice" in str(error):
        return "choose another name; nothing that mxrun has can be replaced"
    return ""
