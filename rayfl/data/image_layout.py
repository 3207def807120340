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
    hint = " after undoing their normalisation" if inputs.dtype.kind == "f" and inputs.min() < 0 else ""
    return f"; these look like {layout}: write x = {_pixels(inputs)}{'.transpose(0, 2, 3, 1)' if first else ''}{hint}"


def _pixels(inputs: np.ndarray) -> str:
    """Code that scales inputs called x to uint8, which wraps whatever lies outside 0..255."""
    if inputs.dtype == np.uint8:
        return "x"
    low, high = float(inputs.min()), float(inputs.max())
    if inputs.dtype.kind == "f" and (low < 0 or high <= 1):
        return "(255 * x).round().astype('uint8')"
    if low >= 0 and high <= 255:
        return f"x{'.round()' if inputs.dtype.kind == 'f' else ''}.astype('uint8')"
    if inputs.dtype.kind != "f" and low >= 0 and 4096 <= high <= 65535:  # of 12 bits it would leave 16 levels
        return "(x // 257).astype('uint8')"
    return "(255.0 * (x - LOW) / (HIGH - LOW)).round().astype('uint8') for pixels from LOW to HIGH"
