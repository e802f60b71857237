"""Kernels for GPUs, executed on the CPU: emulated threads, a race detector, an emulated device."""
