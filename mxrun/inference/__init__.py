"""Inference: inputs and outputs of a trained network, its evaluation and its export."""
