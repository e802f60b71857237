"""MXNet and PyTorch as helper processes: baselines of benchmarks, and reference for tests."""
