"""Tables in text files."""
