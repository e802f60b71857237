"""softmax_cross_entropy: its operator, its loops and its kernels."""
