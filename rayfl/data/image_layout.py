"""Hints in error messages about inputs that look like images in another layout."""

from __future__ import annotations

import numpy as np

from rayfl.data.inputs import Fields, Inputs, Pieces

CHANNELS = (1, 3, 4)
"""Numbers of channels that suggest an image."""


def how_to_make_images(inputs: Inputs) -> str:
    """Says how to convert inputs that look like images to [n, height, width, channels] uint8.

    Returns:
        A remedy that starts with "; ", or "" if inputs are images already or do not look like images.
    """
    if isinstance(inputs, Pieces | Fields) or inputs.ndim != 4:
        return ""
    first, last = inputs.shape[1] in CHANNELS, inputs.shape[3] in CHANNELS
    if first == last or (last and inputs.dtype == np.uint8):
        return ""
    layout = f"images [n, {'channels, height, width' if first else 'height, width, channels'}]"
    if not isinstance(inputs, np.ndarray):
        return f"; these look like {layout}: give uint8 (from a Dataset, a PIL image, without ToTensor)"
    scaled = "x" if inputs.dtype.kind != "f" or inputs.max() > 1 else "(255 * x)"
    rounded = scaled if inputs.dtype.kind != "f" else f"{scaled}.round()"
    pixels = rounded if inputs.dtype == np.uint8 else f"{rounded}.astype('uint8')"
    hint = " after undoing their normalisation" if inputs.dtype.kind == "f" and inputs.min() < 0 else ""
    return f"; these look like {layout}: write x = {pixels}{'.transpose(0, 2, 3, 1)' if first else ''}{hint}"
