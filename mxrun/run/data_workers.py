"""Where a config's own transforms run: on threads, in processes, or in what is faster."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial

from mxrun import library
from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import RunOptions
from mxrun.io.loading.process_transforms import ProcessTransforms
from mxrun.io.loading.python_transforms import ThreadTransforms, TimedTransforms, TransformRunner
from mxrun.io.transforms.pipeline import Pipeline, TransformStep
from mxrun.run.transform_process import command
from mxrun.runtime.numpy_threads import use_one_numpy_thread

_OWN_PACKAGE = "mxrun."


def python_transforms(options: RunOptions, pipelines: Iterable[Pipeline]) -> TransformRunner:
    """Return what applies the transforms in `pipelines` that are not mxrun's own.

    Raises UserError if they must run in processes and a process cannot load one of them.
    """
    steps = [step for pipeline in pipelines for step in pipeline.steps if _is_own(step)]
    plugins = [library.loaded_plugin(path) for path in options.plugins]
    modules = {plugin.module for plugin in plugins}
    elsewhere = [step for step in steps if type(step.transform).__module__ not in modules]
    kind = options.data.worker_kind
    if kind == "process" and elsewhere:
        name = elsewhere[0].transform.name
        problem = f"the transform {name} cannot run in a process: no plugin file defines it"
        hint = "name its file in plugins, or write data.worker_kind: thread"
        raise UserError(Diagnostic(problem, elsewhere[0].place, hint=hint))
    if not steps:
        return ThreadTransforms()
    # As in a process, because the bits of matrix products depend on the number of threads.
    use_one_numpy_thread()
    if kind == "thread":
        return ThreadTransforms()
    if kind == "auto" and (elsewhere or options.data.loader_threads < 2 or not sys.executable):
        return ThreadTransforms()
    processes = partial(ProcessTransforms, command(plugins), options.data.worker_timeout)
    return processes() if kind == "process" else TimedTransforms(processes)


def _is_own(step: TransformStep) -> bool:
    """Return whether a transform is the user's own."""
    return not type(step.transform).__module__.startswith(_OWN_PACKAGE)
