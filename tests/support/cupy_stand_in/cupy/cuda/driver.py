"""cupy.cuda.driver: the error of the driver's own functions."""


class CUDADriverError(RuntimeError):
    """Error of CUDA's driver."""
