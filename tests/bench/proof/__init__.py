"""What must be the same in two commits, part by part."""
