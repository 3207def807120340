"""Fractal images that reuse renderings, like the faster form of the authors' code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayfl.data.fractals.images import FractalImages
from rayfl.data.fractals.lists import draw_distinct


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
        """See `FractalImages.render`."""
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
