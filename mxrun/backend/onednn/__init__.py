"""oneDNN as a source of prepared CPU kernels, through ctypes."""
