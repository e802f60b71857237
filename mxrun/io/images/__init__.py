"""Decoding of image files."""
