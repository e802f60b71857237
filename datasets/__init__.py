"""Bundled data sets, one module each, with the name of the data set that it registers.

Importing this package imports none of the modules: looking up a name in
`mxrun.io.dataset.registry.DATASETS` imports its module.

`digits.csv.gz` and `shakespeare.txt` are not part of mxrun's own work: see `digits.py` and
`shakespeare.py` for their sources and licences.
"""
