"""Images of Python, for the native side."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

#: Pillow's modes of JPEG files that a PNG file does not hold.
_OF_JPEG = ("CMYK", "YCbCr")


def png(image: Any, place: str) -> bytes:
    """A PIL image or an array of uint8 as a PNG file. ``place`` begins an error."""
    from PIL import Image

    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        image = Image.fromarray(image)
    if not isinstance(image, Image.Image):
        found = f"{type(image).__name__} {getattr(image, 'dtype', '')}".strip()
        raise ValueError(f"{place} is a {found}, expected a PIL image or a uint8 array; leave transforms to wave")
    if image.mode in _OF_JPEG:
        image = image.convert("RGB")
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def contents(images: Any) -> list[tuple[str, bytes | None]]:
    """Paths, and names with the contents of files, of one image or several."""
    one = isinstance(images, (str, os.PathLike)) or hasattr(images, "getexif") or getattr(images, "ndim", 4) < 4
    found: list[tuple[str, bytes | None]] = []
    for i, image in enumerate([images] if one else images):
        if isinstance(image, (str, os.PathLike)):
            found.append((os.fspath(image), None))
            continue
        if hasattr(image, "getexif"):
            from PIL import ImageOps

            # As wave and photographers' programs turn files.
            image = ImageOps.exif_transpose(image)
        found.append((f"image {i}", png(image, f"image {i}")))
    return found
