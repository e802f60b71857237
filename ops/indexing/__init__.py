"""Rows and elements selected by indices: take, pick, one_hot and SequenceLast."""
