"""Convolution, Deconvolution and the fusions of Convolution for inference."""
