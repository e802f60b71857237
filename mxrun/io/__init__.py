"""Data pipeline: data sets, splits, transforms, and the iterators that fill batches."""
