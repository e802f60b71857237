"""Packing of images into few large files: RecordIO files or tar shards."""
