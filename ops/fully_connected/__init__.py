"""FullyConnected: its operator and its kernels."""
