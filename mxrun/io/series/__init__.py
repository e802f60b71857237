"""Time series: tables in order of time, as windows of their steps."""
