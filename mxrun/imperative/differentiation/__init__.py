"""Differentiation of recorded calls (`mxrun.autograd`)."""
