"""Causal attention of one query over cached keys and values: its operator and its kernels."""
