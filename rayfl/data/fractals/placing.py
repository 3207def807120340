"""Objects on a canvas: flipped, resized, placed at random, and pasted over one another."""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.streams import Uniform


def flipped(grey: np.ndarray, rng: Uniform) -> np.ndarray:
    """Transposes, flips upside down and mirrors objects [n, size, size], each with probability 1/2."""
    transposes, vertical, horizontal = (rng.random((len(grey), 3)) < 0.5).T[..., None, None]
    grey = np.where(transposes, grey.transpose(0, 2, 1), grey)
    grey = np.where(vertical, grey[:, ::-1], grey)
    return np.where(horizontal, grey[:, :, ::-1], grey)


def placed(objects: np.ndarray, canvas: int, sizes: tuple[float, float], overhang: float, rng: Uniform) -> np.ndarray:
    """Resizes objects and puts each at a random place of its own canvas.

    Args:
        objects: uint8 [n, size, size, 3].
        canvas: Pixels of the canvas's side, S.
        sizes: An object's side is floor(f S) with f uniform between these two.
        overhang: The share of an object that may stick out at any border.
        rng: Draws sizes and places.

    Returns:
        uint8 [n, canvas, canvas, 3].
    """
    draws = rng.random((len(objects), 3))
    side = np.floor((sizes[0] + (sizes[1] - sizes[0]) * draws[:, 0]) * canvas).astype(np.int64)
    margin = np.floor(overhang * side).astype(np.int64)
    free = canvas - side + 2 * margin
    corner = np.floor(draws[:, 1:] * free[:, None]).astype(np.int64) - margin[:, None]
    layers = objects.astype(np.float32)
    for axis in (0, 1):
        layers = _resized_rows(layers, side, corner[:, axis], canvas).transpose(0, 2, 1, 3)
    layers = np.ascontiguousarray(layers)
    layers += 0.5
    return layers.astype(np.uint8)


def _resized_rows(images: np.ndarray, side: np.ndarray, first: np.ndarray, canvas: int) -> np.ndarray:
    """float32 [n, canvas, ...]: rows of images [n, size, ...], resized to `side`, beginning at `first` of the canvas.

    Half-pixel centres, clamped at the edges, no antialiasing, as OpenCV resizes. Element by element and not by matrix
    products, whose bits may depend on threads.
    """
    n, size = images.shape[:2]
    place = np.arange(canvas) - first[:, None]
    source = np.clip((place + 0.5) * (size / side)[:, None] - 0.5, 0, size - 1)
    above = np.minimum(source.astype(np.intp), size - 2)
    share = (source - above).astype(np.float32)
    inside = (place >= 0) & (place < side[:, None])
    rows = images.reshape(n * size, -1)
    above += (np.arange(n) * size)[:, None]
    resized, below = rows.take(above, 0), rows.take(above + 1, 0)
    resized *= ((1 - share) * inside)[..., None]
    below *= (share * inside)[..., None]
    resized += below
    canvases: np.ndarray = resized.reshape(n, canvas, *images.shape[2:])
    return canvases


def pasted(layers: np.ndarray, objects: np.ndarray, canvas: np.ndarray) -> None:
    """Pastes layers on canvases, in their order; what is not black covers what is there.

    Args:
        layers: uint8 [sum of objects, size, size, 3], those of an image beside one another.
        objects: [images] integers, how many layers each image has.
        canvas: uint8 [images, size, size, 3], which is written to.
    """
    first = np.cumsum(objects) - objects
    for place in range(objects.max()):
        images = np.flatnonzero(objects > place)
        layer = layers[first[images] + place]
        visible = (layer[..., 0] | layer[..., 1] | layer[..., 2]) > 0  # `any` over three values is ten times slower
        canvas[images] = np.where(visible[..., None], layer, canvas[images])
