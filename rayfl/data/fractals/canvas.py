"""Pictures of the points of fractal objects: rendered in grey, coloured, placed on a canvas, and blurred.

Points become counts per pixel within a bounding window, with a random 3 x 3 patch per point. Grey levels map to hues,
with one saturation and value per object. Objects are flipped, resized, placed at random positions, and pasted over each
other. A background of coloured noise by the diamond-square algorithm is for the multi-label baseline. Half of the
images get a 3 x 3 Gaussian blur.
"""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.systems import UniformDraws


def patch_counts(points: np.ndarray, size: int, patches: np.ndarray) -> np.ndarray:
    """Counts how often the patches around the points cover each pixel.

    The window spans the smallest to the largest coordinate of a chain, separately in each direction. A point covers the
    pixels that the patch of its chain selects among its own and the eight neighbouring ones; pixels outside the image
    are dropped. All points of a chain share the patch, so one correlation of the point counts with it is enough.

    Args:
        points: float64 [steps, n, blocks, 2] of n chains. The first coordinate gives the row.
        size: Side of the image in pixels.
        patches: bool [n, 3, 3].

    Returns:
        int32 [n, size, size].
    """
    _, n, blocks, _ = points.shape
    low, high = points.min(0).min(1, keepdims=True), points.max(0).max(1, keepdims=True)
    span = np.where(high > low, high - low, 1)
    low, span = (
        np.repeat(part, blocks, 1) for part in (low, span)
    )  # broadcasting would run along two numbers at a time
    pixels = points - low
    pixels *= size - 1
    pixels /= span
    pixels = pixels.astype(np.int32)
    place = pixels[..., 0] * np.intp(size)
    place += pixels[..., 1]
    place += (np.arange(n) * size**2)[:, None]
    counts = np.bincount(place.ravel(), minlength=n * size**2).reshape(n, size, size).astype(np.int32)
    return _correlated(counts, patches)


def _correlated(counts: np.ndarray, patches: np.ndarray) -> np.ndarray:
    size = counts.shape[1]
    padded = np.pad(counts, ((0, 0), (1, 1), (1, 1)))
    covered = np.zeros_like(counts)
    for row, column in np.ndindex(3, 3):
        on = np.flatnonzero(patches[:, row, column])
        covered[on] += padded[on, 2 - row : 2 - row + size, 2 - column : 2 - column + size]
    return covered


def graded(counts: np.ndarray) -> np.ndarray:
    """float32 [n, size, size] in [0, 1]: counts divided by the largest count of the image; black if there are none."""
    most = counts.max((1, 2), keepdims=True)
    return np.asarray(counts / np.maximum(most, 1), np.float32)


_BLACK = 256


def coloured(grey: np.ndarray, rng: UniformDraws) -> np.ndarray:
    """Colours objects with hue floor(255 g + shift) modulo 256 and a random shift, saturation and value each.

    Args:
        grey: float32 [n, size, size] in [0, 1]; 0 stays black.
        rng: Draws the shift from [0, 255), the saturation from 255 [0.3, 1) and the value from 255 [0.5, 1).

    Returns:
        uint8 [n, size, size, 3], red, green and blue.
    """
    n, size, _ = grey.shape
    shift, saturation, value = rng.random((n, 3)).T
    palette = np.zeros((n, _BLACK + 1, 4), np.uint8)
    saturation, value = np.floor(255 * (0.3 + 0.7 * saturation)), np.floor(255 * (0.5 + 0.5 * value))
    palette[:, :_BLACK, :3] = hsv_to_rgb(np.arange(_BLACK), saturation[:, None], value[:, None])
    hue = (grey * np.float32(255) + (255 * shift).astype(np.float32)[:, None, None]).astype(np.int32)
    hue &= 255
    hue[grey == 0] = _BLACK
    hue += (np.arange(n, dtype=np.int32) * (_BLACK + 1))[:, None, None]
    words = np.take(palette.view(np.uint32).ravel(), hue)  # a colour is one word, so a third of the look-ups
    return np.asarray(words.view(np.uint8).reshape(n, size, size, 4)[..., :3])


def hsv_to_rgb(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Converts colours in the 8-bit format of OpenCV, in which one unit of hue is two degrees.

    Args:
        hue: [...] integers in [0, 256).
        saturation: [...] in [0, 255].
        value: [...] in [0, 255].

    Returns:
        uint8 [..., 3].
    """
    greyness = saturation[..., None] / 255 * (1 - _PURE_HUES[hue])
    return np.asarray(np.rint(value[..., None] * (1 - greyness)), np.uint8)


def _pure_hues() -> np.ndarray:
    """float64 [256, 3] in [0, 1]: hues at full saturation and value."""
    sextant = np.arange(256)[:, None] * 2 % 360 / 60
    return np.asarray(np.clip(np.abs((sextant + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1))


_PURE_HUES = _pure_hues()


def flipped(grey: np.ndarray, rng: UniformDraws) -> np.ndarray:
    """Transposes, flips upside down and mirrors objects [n, size, size], each with probability 1/2."""
    transposes, vertical, horizontal = (rng.random((len(grey), 3)) < 0.5).T[..., None, None]
    grey = np.where(transposes, grey.transpose(0, 2, 1), grey)
    grey = np.where(vertical, grey[:, ::-1], grey)
    return np.where(horizontal, grey[:, :, ::-1], grey)


def placed(
    objects: np.ndarray, canvas: int, sizes: tuple[float, float], overhang: float, rng: UniformDraws
) -> np.ndarray:
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


def backgrounds(n: int, size: int, rng: UniformDraws) -> np.ndarray:
    """uint8 [n, size, size, 3]: clouds whose height determines hue, saturation and value."""
    heights = diamond_square(n, size, rng)
    draws = rng.random((n, 6))[..., None, None]
    hue = (0.25 + 0.75 * draws[:, 0]) * heights + draws[:, 1]
    saturation = (0.1 + 0.2 * draws[:, 2]) * heights + 0.4 + 0.2 * draws[:, 3]
    value = (0.3 + 0.3 * draws[:, 4]) * heights + 0.4 + 0.2 * draws[:, 5]
    saturation, value = (np.floor(255 * np.clip(part, 0, 1)) for part in (saturation, value))
    return hsv_to_rgb(np.floor(255 * hue).astype(np.int64) & 255, saturation, value)


def diamond_square(n: int, size: int, rng: UniformDraws) -> np.ndarray:
    """float64 [n, size, size]: corners in [0, 1), and noise of +-e^(fading (1 - level)) / 2 at a level."""
    levels = int(np.ceil(np.log2(size - 1)))
    side = 2**levels + 1
    draws = rng.random((n, 1 + side**2))
    fading, noise = 0.4 + 0.4 * draws[:, 0], draws[:, 1:].reshape(n, side, side)
    heights = noise.copy()
    noise -= 0.5
    for level in range(1, levels + 1):
        step = 2 ** (levels - level)
        noise_here = np.exp(fading * (1 - level))[:, None, None] * noise[:, ::step, ::step]
        _refine(heights[:, ::step, ::step], noise_here)
    return heights[:, :size, :size]


def _refine(grid: np.ndarray, noise: np.ndarray) -> None:
    """Fills in the points between the even points of a grid [n, 2 m + 1, 2 m + 1]."""
    corners = grid[:, ::2, ::2]
    grid[:, 1::2, 1::2] = (
        corners[:, :-1, :-1] + corners[:, 1:, :-1] + corners[:, :-1, 1:] + corners[:, 1:, 1:]
    ) / 4 + noise[:, 1::2, 1::2]
    centres = grid[:, 1::2, 1::2]
    for axes in ((0, 1, 2), (0, 2, 1)):
        ends = corners.transpose(axes)
        beside = np.pad(centres.transpose(axes), ((0, 0), (1, 1), (0, 0)))  # no neighbour beyond the border
        total = ends[:, :, :-1] + ends[:, :, 1:] + beside[:, :-1] + beside[:, 1:]
        neighbours = np.full((ends.shape[1], 1), 4)
        neighbours[[0, -1]] = 3
        grid.transpose(axes)[:, ::2, 1::2] = total / neighbours + noise.transpose(axes)[:, ::2, 1::2]


def randomly_blurred(images: np.ndarray, sigmas: tuple[float, float], rng: UniformDraws) -> np.ndarray:
    """Blurs each of uint8 images [n, size, size, 3] with probability 1/2, by a sigma uniform between two bounds."""
    draws = rng.random((len(images), 2))
    chosen = np.flatnonzero(draws[:, 0] < 0.5)
    blurred = images.copy()
    blurred[chosen] = gaussian_blur(images[chosen], sigmas[0] + (sigmas[1] - sigmas[0]) * draws[chosen, 1])
    return blurred


def gaussian_blur(images: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Blurs uint8 images by 3 x 3 kernels, one sigma each; borders mirror without the edge pixel, as in OpenCV."""
    neighbour = np.exp(-1 / (2 * sigma**2))
    weights = np.stack([neighbour, np.ones_like(neighbour)]) / (1 + 2 * neighbour)
    outer, inner = weights.astype(np.float32)[..., None, None, None]
    x = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect").astype(np.float32)
    x = outer * (x[:, :-2] + x[:, 2:]) + inner * x[:, 1:-1]
    x = outer * (x[:, :, :-2] + x[:, :, 2:]) + inner * x[:, :, 1:-1]
    x += 0.5
    return np.asarray(x.astype(np.uint8))
