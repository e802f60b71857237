"""Oracles of the tests: MXNet and PyTorch run the same symbols as mxrun."""
