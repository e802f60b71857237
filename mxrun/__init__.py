"""mxrun: neural networks from a YAML file, with everything known before the first step.

`mxrun.load` opens a config or a run from Python; `mxrun.nd` has arrays and operators on them,
`mxrun.sym` symbols. Their modules are imported when they are first used.
"""

import sys as _sys
from importlib.machinery import ModuleSpec as _ModuleSpec
from importlib.util import spec_from_file_location as _spec_from_file_location
from os import path as _path

__version__ = "0.1.0"


class _CheckoutFinder:
    """Finder of `ops`, `datasets` and `configs`, which in a checkout are beside this folder.

    They are found there however mxrun was installed, since Python in a checkout imports mxrun from
    there.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "_ModuleSpec | None":
        """Return the spec of one of the three packages, and None for anything else."""
        parent, _, part = name.rpartition(".")
        if parent != "mxrun" or part not in ("ops", "datasets", "configs"):
            return None
        folder = _path.join(_path.dirname(_path.dirname(_path.abspath(__file__))), part)
        main = _path.join(folder, "__init__.py")
        return _spec_from_file_location(name, main, submodule_search_locations=[folder])


if not _path.isdir(_path.join(_path.dirname(_path.abspath(__file__)), "ops")):
    _sys.meta_path.append(_CheckoutFinder)

# Module of each public name; `__init__.pyi` has their types.
_MODULES = {
    "Context": "mxrun.api.imperative",
    "EpochDone": "mxrun.train.observer",
    "EvaluationResult": "mxrun.api.results",
    "GeneratedText": "mxrun.api.generation",
    "MemoryPlan": "mxrun.api.inspection",
    "LoadedModel": "mxrun.api.model",
    "MxrunError": "mxrun.base.errors",
    "NDArray": "mxrun.api.imperative",
    "Network": "mxrun.api.inspection",
    "Note": "mxrun.train.observer",
    "ModelParameters": "mxrun.api.parameters",
    "Prediction": "mxrun.api.results",
    "Predictor": "mxrun.api.predictor",
    "RunResult": "mxrun.api.results",
    "RunStarted": "mxrun.train.observer",
    "StepDone": "mxrun.train.observer",
    "StopTraining": "mxrun.api.events",
    "Stopped": "mxrun.base.errors",
    "UserError": "mxrun.base.errors",
    "autograd": "mxrun.api.imperative",
    "cpu": "mxrun.api.imperative",
    "current_context": "mxrun.api.imperative",
    "kv": "mxrun.api.imperative",
    "kvstore": "mxrun.api.imperative",
    "load": "mxrun.api.model",
    "nd": "mxrun.api.imperative",
    "optimizer": "mxrun.api.imperative",
    "random": "mxrun.api.imperative",
    "sym": "mxrun.api.imperative",
    "symbol": "mxrun.api.imperative",
}

__all__ = [
    "Context",
    "EpochDone",
    "EvaluationResult",
    "GeneratedText",
    "LoadedModel",
    "MemoryPlan",
    "ModelParameters",
    "MxrunError",
    "NDArray",
    "Network",
    "Note",
    "Prediction",
    "Predictor",
    "RunResult",
    "RunStarted",
    "StepDone",
    "StopTraining",
    "Stopped",
    "UserError",
    "__version__",
    "autograd",
    "cpu",
    "current_context",
    "kv",
    "kvstore",
    "load",
    "nd",
    "optimizer",
    "random",
    "sym",
    "symbol",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        from mxrun.api.attributes import no_attribute

        raise no_attribute(name, _MODULES)
    from importlib import import_module

    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
