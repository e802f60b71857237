"""LayerNorm and RMSNorm: their operators, their loops and their kernels."""
