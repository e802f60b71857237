"""LeakyReLU: its operator and its kernels."""
