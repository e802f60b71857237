"""Access to kernels and devices, without operator semantics."""
