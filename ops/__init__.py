"""The operator library: a family of operators is one file, or a folder where it needs several."""
