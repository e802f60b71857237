"""Convolution: its operator and its fusions for inference."""
