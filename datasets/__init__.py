"""The bundled data sets, one module each, named like the data set it registers.

Importing this package imports none of them: it declares their names, and looking a name up in
`mxrun.io.dataset.DATASETS` imports its module.

`digits.csv.gz` is not part of mxrun's own work: see `digits.py` for its source and licence.
"""

import pkgutil

from mxrun.io.dataset import DATASETS

for _module in pkgutil.iter_modules(__path__):
    DATASETS.declare(_module.name, f"{__name__}.{_module.name}")
