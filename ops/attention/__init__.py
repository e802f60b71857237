"""Scaled-dot-product attention and MXNet's interleaved products: operators and kernels."""
