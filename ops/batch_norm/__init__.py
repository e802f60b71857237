"""BatchNorm: its operator, its compiled loops and its fusions."""
