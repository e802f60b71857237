"""What people see: consoles, progress bars and tables."""
