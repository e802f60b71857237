"""The commands, one file each: read one from top to bottom to see what it does."""
