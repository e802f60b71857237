"""SoftmaxOutput: its operator and its kernels."""
