"""Implementations of the commands, one file each, to be read from top to bottom."""
