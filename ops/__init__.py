"""The operator library: one file per family, each operator whole in one place."""
