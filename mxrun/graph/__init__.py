"""Graphs: symbols, shape inference, lowering and gradients, before kernels and memory."""
