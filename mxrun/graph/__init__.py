"""Symbols, inference, gradients and the plan: what is known before anything has an address."""
