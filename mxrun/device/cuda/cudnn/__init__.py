"""cuDNN's graph API through ctypes: products and convolutions as execution plans."""
