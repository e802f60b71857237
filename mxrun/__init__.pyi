from mxrun.api.events import StopTraining as StopTraining
from mxrun.api.generation import GeneratedText as GeneratedText
from mxrun.api.imperative import autograd as autograd
from mxrun.api.imperative import kv as kv
from mxrun.api.imperative import kvstore as kvstore
from mxrun.api.imperative import nd as nd
from mxrun.api.imperative import optimizer as optimizer
from mxrun.api.imperative import random as random
from mxrun.api.imperative import sym as sym
from mxrun.api.imperative import symbol as symbol
from mxrun.api.inspection import MemoryPlan as MemoryPlan
from mxrun.api.inspection import Network as Network
from mxrun.api.model import LoadedModel as LoadedModel
from mxrun.api.model import load as load
from mxrun.api.parameters import ModelParameters as ModelParameters
from mxrun.api.predictor import Predictor as Predictor
from mxrun.api.results import EvaluationResult as EvaluationResult
from mxrun.api.results import Prediction as Prediction
from mxrun.api.results import RunResult as RunResult
from mxrun.base.context import Context as Context
from mxrun.base.context import cpu as cpu
from mxrun.base.context import current_context as current_context
from mxrun.base.errors import MxrunError as MxrunError
from mxrun.base.errors import Stopped as Stopped
from mxrun.base.errors import UserError as UserError
from mxrun.imperative.arrays.ndarray import NDArray as NDArray
from mxrun.train.observer import EpochDone as EpochDone
from mxrun.train.observer import Note as Note
from mxrun.train.observer import RunStarted as RunStarted
from mxrun.train.observer import StepDone as StepDone

__version__: str
__all__: list[str]
