"""oneDNN as a provider of prepared CPU kernels, through ctypes."""
