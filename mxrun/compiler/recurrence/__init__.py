"""Recurrences as loops: the body of a recurrence, forward and backward, and the loops over it."""
