"""Convolution: its operator, and what is fused with it in inference."""
