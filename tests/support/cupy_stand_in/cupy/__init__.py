"""Stand-in for the few calls of CuPy that mxrun makes, with CUDA's rules and without a card.

Its folder precedes CuPy's on the path of a process. The card's memory is pages of this process that
have no rights but while the card works, and every stream delays its work until something waits for
it: what reads too early sees old bytes. A kernel is found by its symbol among the functions that
were compiled, and the optimised module from which its text is generated runs on emulated threads.

CUPY_STAND_IN is a JSON object of what differs from one healthy card: see `cuda.card.Settings`.
"""

from cupy import cuda as cuda

__version__ = "stand-in"
