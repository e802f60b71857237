"""CTCLoss: its operator, its loops and its kernels."""
