"""The passes that turn a symbol's graph into a plan, one per file."""
