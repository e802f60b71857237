"""Text files as token ids: reading of UTF-8, texts with labels, and windows over the ids."""
