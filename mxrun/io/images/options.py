"""Option of all data sets of image files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as Option

ExifOrientation = Annotated[
    bool,
    Option(
        description="Whether images are turned as the orientation in their EXIF data says, as "
        "viewers show them; false takes their pixels as they are stored. Inference and evaluation "
        "treat files as training did.",
    ),
]
"""Type of the option `EXIF_ORIENTATION` of a data set of image files; true by default."""
EXIF_ORIENTATION = "exif_orientation"


def reads_as_stored(options: object) -> bool:
    """Return whether the options of a data set say that images are not turned."""
    return not getattr(options, EXIF_ORIENTATION, True)
