"""Terminal output: consoles, progress bars and tables; drawings and result files."""
