"""Registers all bundled data sets, also for a single test file."""

import mxrun.datasets  # noqa: F401 - declares their names
