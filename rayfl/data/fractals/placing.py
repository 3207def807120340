"""Objects on a canvas: flipped, resized, placed at random positions, and pasted over each other."""

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
    """Resizes objects and places each at a random position on its own canvas.

    Args:
        objects: uint8 [n, size, size, 3].
        canvas: Side S of the canvas in pixels.
        sizes: Bounds of f; the side of an object is floor(f S), with f uniform.
        overhang: Share of an object that may extend beyond each border.
        rng: Random numbers for sizes and positions.

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
    """float32 [n, canvas, ...]: rows of images [n, size, ...], resized to `side`, from row `first` of the canvas.

    Half-pixel centres, clamped at the edges, no antialiasing, as in OpenCV. Computed element by element, since the
    bits of matrix products may depend on the number of threads.
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
    """Pastes layers on canvases in order; pixels that are not black cover the canvas.

    Args:
        layers: uint8 [sum of objects, size, size, 3], grouped by image.
        objects: [images] integers, number of layers per image.
        canvas: uint8 [images, size, size, 3], modified in place.
    """
    first = np.cumsum(objects) - objects
    for place in range(objects.max()):
        images = np.flatnonzero(objects > place)
        layer = layers[first[images] + place]
        visible = (layer[..., 0] | layer[..., 1] | layer[..., 2]) > 0  # `any` over three values is ten times slower
        canvas[images] = np.where(visible[..., None], layer, canvas[images])
