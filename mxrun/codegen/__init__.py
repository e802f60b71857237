"""Code generation and kernel providers, without operator semantics."""
