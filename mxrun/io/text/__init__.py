"""Text as token ids: reading of UTF-8 files, vocabularies, and windows over the ids."""
