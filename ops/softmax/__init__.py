"""softmax and log_softmax: their operators and their kernels."""
