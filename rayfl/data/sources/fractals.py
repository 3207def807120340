"""Pairs of fractal images for pre-training without data; only the codes of each image are stored."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.fractals.cached import CachedFractalImages
from rayfl.data.fractals.codes import sample_codes
from rayfl.data.fractals.images import Drawing, FractalImages
from rayfl.data.fractals.lists import draw_distinct
from rayfl.data.fractals.orbits import BLOCK
from rayfl.errors import ScenarioError
from rayfl.streams import stream

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
