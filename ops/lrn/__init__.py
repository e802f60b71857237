"""LRN: its operator and its kernels."""
