"""Images of several fractal objects, each rendered from a code.

Chen et al., "On the Importance and Applicability of Pre-Training for Federated Learning", ICLR 2023, appendix A.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from rayfl.data.fractals.background import backgrounds
from rayfl.data.fractals.blur import randomly_blurred
from rayfl.data.fractals.codes import Codes
from rayfl.data.fractals.colouring import coloured
from rayfl.data.fractals.jitter import jittered
from rayfl.data.fractals.orbits import orbits
from rayfl.data.fractals.placing import flipped, pasted, placed
from rayfl.data.fractals.rendering import graded, patch_counts
from rayfl.data.fractals.streams import StreamPerImage, Uniform
from rayfl.data.rendered import Rendered
from rayfl.streams import stream

_POINTS_AT_ONCE = 2**19


@dataclass(frozen=True)
class Drawing:
    """How codes become images.

    Attributes:
        size: Side of an image in pixels.
        render_size: Side of an object in pixels before it is resized.
        points: Points of an object; above 1 000, a multiple of 1 000.
        sizes: Smallest and largest size of an object, as a share of the side of the image.
        overhang: Share of an object that may extend beyond each border.
        sigmas: Bounds of the sigma of the blur, which is applied to half the images.
        jitter: Whether one map of each code is scaled before rendering.
        background: The background of the objects.
    """

    size: int = 32
    render_size: int = 32
    points: int = 1000
    sizes: tuple[float, float] = (0.45, 0.75)
    overhang: float = 0.25
    sigmas: tuple[float, float] = (0.5, 2.0)
    jitter: bool = True
    background: str = "black"


@dataclass(frozen=True)
class FractalImages(Rendered):
    """Images rendered from lists of codes.

    Attributes:
        codes: All codes.
        chosen: int32 [n, most objects], the codes of each image in the order in which they are pasted, padded with -1.
        numbers: int64 [n], number of the random stream of each fixed image.
        drawing: How codes become images.
        seed: Seed of the fixed images.
        shares_views: See `Rendered`.
    """

    codes: Codes
    chosen: np.ndarray
    numbers: np.ndarray
    drawing: Drawing
    seed: int
    shares_views: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.chosen), self.drawing.size, self.drawing.size, 3

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The seed and the numbers of codes, lists and fixed images drawn from it, and how images are drawn."""
        return {
            "images of": "fractals",
            "seed": self.seed,
            "codes": len(self.codes),
            "images": len(self.chosen),
            "first": int(self.numbers[0]),
            "objects": [int((self.chosen >= 0).sum(1).min()), self.chosen.shape[1]],
            "shares_views": self.shares_views,
            **asdict(self.drawing),
        }

    def render(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """uint8 [k, size, size, 3]: new renderings, each with its own jitter, patch, colour and position."""
        blocks = [self._drawn(self.chosen[rows[block]], rng, rng) for block in self.blocks(len(rows))]
        return np.concatenate(blocks) if blocks else np.empty((0, *self.shape[1:]), np.uint8)

    def fixed(self, rows: np.ndarray) -> np.ndarray:
        """uint8 [k, size, size, 3]: renderings from a separate random stream per image."""
        blocks = []
        for block in self.blocks(len(rows)):
            chosen = self.chosen[rows[block]]
            rngs = [stream(self.seed, "fractal image", int(number)) for number in self.numbers[rows[block]]]
            of_objects = StreamPerImage(rngs, (chosen >= 0).sum(1))
            blocks.append(self._drawn(chosen, of_objects, StreamPerImage(rngs, np.ones(len(rngs), np.int64))))
        return np.concatenate(blocks) if blocks else np.empty((0, *self.shape[1:]), np.uint8)

    def take(self, rows: np.ndarray) -> Self:
        """Some of the images."""
        return replace(self, chosen=self.chosen[rows], numbers=self.numbers[rows])

    def objects(self, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """float32 [k, side, side] in [0, 1]: new grey renderings of some codes; side is the drawing's `render_size`."""
        step = max(1, _POINTS_AT_ONCE // self.drawing.points)
        return np.concatenate([self._grey(chosen[first : first + step], rng) for first in range(0, len(chosen), step)])

    def composed(self, grey: np.ndarray, objects: np.ndarray, of_objects: Uniform, of_images: Uniform) -> np.ndarray:
        """Composes images from rendered objects, with random flips, colour, size and position for each.

        Args:
            grey: float32 [sum of objects, side, side], grouped by image.
            objects: [k] integers, number of objects per image.
            of_objects: Random numbers for objects.
            of_images: Random numbers for backgrounds and blurs.

        Returns:
            uint8 [k, size, size, 3].
        """
        how = self.drawing
        layers = coloured(flipped(grey, of_objects), of_objects)
        layers = placed(layers, how.size, how.sizes, how.overhang, of_objects)
        if how.background == "black":
            canvas = np.zeros((len(objects), how.size, how.size, 3), np.uint8)
        else:
            canvas = backgrounds(len(objects), how.size, of_images)
        pasted(layers, objects, canvas)
        return randomly_blurred(canvas, how.sigmas, of_images)

    def blocks(self, images: int) -> list[slice]:
        """Splits a batch into blocks of images that keep memory bounded."""
        step = max(1, _POINTS_AT_ONCE // (self.drawing.points * self.chosen.shape[1]))
        return [slice(first, first + step) for first in range(0, images, step)]

    def _drawn(self, chosen: np.ndarray, of_objects: Uniform, of_images: Uniform) -> np.ndarray:
        used = chosen >= 0
        return self.composed(self._grey(chosen[used], of_objects), used.sum(1), of_objects, of_images)

    def _grey(self, chosen: np.ndarray, rng: Uniform) -> np.ndarray:
        codes = self.codes.take(chosen)
        if self.drawing.jitter:
            codes = jittered(codes, rng)
        points = orbits(codes, rng.random((len(chosen), self.drawing.points)))
        return graded(patch_counts(points, self.drawing.render_size, rng.random((len(chosen), 3, 3)) < 0.5))
