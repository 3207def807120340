"""Pairs of fractal images for pre-training without data, of several objects each, rendered from their codes.

Only the codes of each image are stored. Chen et al., "On the Importance and Applicability of Pre-Training for Federated
Learning", ICLR 2023, appendix A. The cached form reuses renderings, like the faster form of the authors' code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.fractals.canvas import (
    backgrounds,
    coloured,
    flipped,
    graded,
    pasted,
    patch_counts,
    placed,
    randomly_blurred,
)
from rayfl.data.fractals.systems import (
    BLOCK,
    Codes,
    StreamPerImage,
    UniformDraws,
    draw_distinct,
    jittered,
    orbits,
    sample_codes,
)
from rayfl.data.inputs import Rendered
from rayfl.errors import ScenarioError
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

    def composed(
        self, grey: np.ndarray, objects: np.ndarray, of_objects: UniformDraws, of_images: UniformDraws
    ) -> np.ndarray:
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

    def _drawn(self, chosen: np.ndarray, of_objects: UniformDraws, of_images: UniformDraws) -> np.ndarray:
        used = chosen >= 0
        return self.composed(self._grey(chosen[used], of_objects), used.sum(1), of_objects, of_images)

    def _grey(self, chosen: np.ndarray, rng: UniformDraws) -> np.ndarray:
        codes = self.codes.take(chosen)
        if self.drawing.jitter:
            codes = jittered(codes, rng)
        points = orbits(codes, rng.random((len(chosen), self.drawing.points)))
        return graded(patch_counts(points, self.drawing.render_size, rng.random((len(chosen), 3, 3)) < 0.5))


@dataclass(frozen=True)
class CachedFractalImages(FractalImages):
    """Images whose objects come from renderings that a batch shares.

    The first code of an image is its own; the others are drawn from the own codes of the batch. Every code of the batch
    is rendered once, and those of every second image once more. Each object of each view uses one rendering of its code
    at random, so the views of an image often show the same rendering with different flips, colours, sizes and
    positions. Fixed images are the same as for `FractalImages`.

    In the code of Chen et al. (ICLR 2023), every loader process keeps up to 1 024 codes and 32 renderings of each,
    evicts at random, and takes partners from this cache. Its content depends on what the process fetched before. Here
    the batch alone determines the renderings, so images are the same for any number of workers. This differs from the
    original in two ways: partners and second renderings come only from the batch, and if a batch has fewer own codes
    than an image has objects, all codes of its images serve as partners. Own codes are drawn uniformly rather than
    visited ten times each.
    """

    @property
    def recipe(self) -> Mapping[str, Any]:
        return {**super().recipe, "form": "cached"}

    def render(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.render_views(rows, [rng])[0]

    def render_views(self, rows: np.ndarray, rngs: Sequence[np.random.Generator]) -> list[np.ndarray]:
        """See `Rendered.render_views`; renderings and partners are drawn from the first view's stream."""
        used = self.chosen[rows] >= 0
        lists, codes = self._lists(rows, rngs[0])
        renderings = np.concatenate([np.arange(len(codes)), lists[1::2, 0]])
        grey = self.objects(codes[renderings], rngs[0])[np.argsort(renderings, kind="stable")]
        copies = np.bincount(renderings, minlength=len(codes))
        first = np.cumsum(copies) - copies
        views = []
        for rng in rngs:
            taken = first[lists] + (rng.random(lists.shape) * copies[lists]).astype(np.int64)
            blocks = [
                self.composed(grey[taken[block][used[block]]], used[block].sum(1), rng, rng)
                for block in self.blocks(len(rows))
            ]
            views.append(np.concatenate(blocks))
        return views

    def _lists(self, rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The objects of each image, [k, most] indices into the codes that the batch renders, and these codes."""
        chosen = self.chosen[rows]
        codes = np.unique(chosen[:, 0])
        if len(codes) < chosen.shape[1]:
            codes = np.unique(chosen[chosen >= 0])
        lists = np.empty((len(rows), min(chosen.shape[1], len(codes))), np.int32)
        lists[:, 0] = np.searchsorted(codes, chosen[:, 0])
        draw_distinct(lists, len(codes), rng, first=1)
        return lists, codes


_HALVED_FROM = 64


def load(
    source: Literal["auto", "files", "generated"],
    seed: int,
    codes: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000,
    pairs: PositiveInt = 1_000_000,
    test_images: PositiveInt = 1000,
    objects: PositiveInt | tuple[PositiveInt, PositiveInt] = 2,
    size: Annotated[int, Field(ge=8, le=1024)] = 32,
    points: PositiveInt = 1000,
    sizes: tuple[Annotated[float, Field(ge=0.15)], Annotated[float, Field(le=1)]] = (0.45, 0.75),
    overhang: Annotated[float, Field(ge=0, le=0.5)] = 0.25,
    jitter: bool = True,
    background: Literal["black", "diamond_square"] = "black",
    views: Literal["rendered", "shared"] = "rendered",
    form: Literal["exact", "cached"] = "exact",
    labels: Literal["codes", "multi_hot"] = "codes",
) -> Dataset:
    """Generates images of distinct codes, drawn uniformly; each view of a training batch is a new rendering.

    Args:
        codes: Number of iterated function systems, sampled once with the seed of the data.
        pairs: Number of training images; the views of an image have the same codes.
        test_images: Number of test images, which are fixed.
        objects: Number of codes per image, or the smallest and largest number.
        size: Side of an image in pixels. From 64, objects are rendered at half the size.
        points: Points of an object: 1 000 for 32 pixels, 100 000 for 224.
        sizes: Smallest and largest side of an object, as shares of the side of the image.
        overhang: Share of an object that may extend beyond each border.
        jitter: Whether one map of a code is scaled before every rendering.
        background: Background of the objects.
        views: "rendered" renders each view separately; "shared" augments one rendering for all views of a batch.
        form: "exact" renders every object of every view from codes that are fixed for each image, as in the paper;
            "cached" reuses the renderings of a batch (see `CachedFractalImages`), which is faster.
        labels: "codes" gives int32 [n, most objects], padded with -1, or [n, 1] in cached form, where images have only
            one code of their own; these labels are not classes. "multi_hot" gives uint8 [n, codes].

    Raises:
        ScenarioError: Options are inconsistent, or `source` is "files".
    """
    if source == "files":
        raise ScenarioError("data.source: 'fractals' are always generated; choose 'auto' or 'generated'")
    least, most = (objects, objects) if isinstance(objects, int) else objects
    if least > most:
        raise ScenarioError(f"data.options.objects: from {least} to {most}; give the smaller number first")
    if codes < most:
        raise ScenarioError(
            f"data.options.codes: {codes} codes are too few for {most} distinct objects; give at least {most}"
        )
    if points > BLOCK and points % BLOCK:
        raise ScenarioError(f"data.options.points: above {BLOCK}, must be a multiple of {BLOCK} (got {points})")
    if sizes[0] > sizes[1]:
        raise ScenarioError(f"data.options.sizes: from {sizes[0]} to {sizes[1]}; give the smaller share first")
    if labels == "multi_hot" and codes > 10_000:
        raise ScenarioError(
            f"data.options.labels: 'multi_hot' is limited to 10000 codes, not {codes}; reduce data.options.codes"
        )
    if labels == "multi_hot" and form == "cached":
        raise ScenarioError(
            "data.options.labels: 'multi_hot' lists all codes of an image, but form = 'cached' changes them in every "
            "batch; set form = 'exact'"
        )
    half = size // 2 if size >= _HALVED_FROM else size
    drawing = Drawing(size, half, points, sizes, overhang, jitter=jitter, background=background)
    every = sample_codes(codes, stream(seed, "fractal codes"))
    parts = []
    for part, (first, number) in enumerate(((0, pairs), (pairs, test_images))):
        chosen = chosen_codes(number, codes, least, most, stream(seed, "fractal objects", part))
        kind = FractalImages if form == "exact" else CachedFractalImages
        images = kind(every, chosen, np.arange(first, first + number), drawing, seed, views == "shared")
        own = chosen if form == "exact" else chosen[:, :1]
        parts.append(Samples(images, own if labels == "codes" else multi_hot(chosen, codes)))
    count = f"{least}" if least == most else f"{least} to {most}"
    description = f"fractals: {codes} codes, {count} in an image of {size} x {size} pixels, {points} points each"
    classes = codes if labels == "multi_hot" else None
    return Dataset("fractals", parts[0], parts[1], classes, Provenance("generated", description))


def chosen_codes(number: int, codes: int, least: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """int32 [number, most]: distinct uniform codes, `least` to `most` per image, padded with -1."""
    chosen = np.empty((number, most), np.int32)
    draw_distinct(chosen, codes, rng)
    objects = rng.integers(least, most, number, endpoint=True)
    chosen[np.arange(most) >= objects[:, None]] = -1
    return chosen


def multi_hot(chosen: np.ndarray, codes: int) -> np.ndarray:
    """uint8 [n, codes]: 1 for the codes of each image."""
    labels = np.zeros((len(chosen), codes), np.uint8)
    image, place = np.nonzero(chosen >= 0)
    labels[image, chosen[image, place]] = 1
    return labels
