"""Data before any training: surveys for `init`, samples, checks and statistics."""
