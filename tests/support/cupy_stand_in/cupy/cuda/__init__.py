"""Parts of cupy.cuda."""

from cupy.cuda import device as device
from cupy.cuda import driver as driver
from cupy.cuda import function as function
from cupy.cuda import graph as graph
from cupy.cuda import memory as memory
from cupy.cuda import pinned_memory as pinned_memory
from cupy.cuda import runtime as runtime
from cupy.cuda import stream as stream
from cupy.cuda.device import Device as Device
from cupy.cuda.graph import Graph as Graph
from cupy.cuda.memory import Memory as Memory
from cupy.cuda.stream import Event as Event
from cupy.cuda.stream import Stream as Stream
from mxrun.device.cuda.cudnn import library as _library

if (_loaded := _library.load()) is not None:
    from cupy.cuda.cudnn import Calls

    Calls(_loaded._functions)
