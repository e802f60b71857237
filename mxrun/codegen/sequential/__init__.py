"""Compiler of native functions: a part of Python to LLVM."""
