"""Every test here may name any bundled data set, also when its file runs alone."""

import mxrun.datasets  # noqa: F401 - declares their names
