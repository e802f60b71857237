"""transpose and SwapAxis: their operators and their kernels."""
