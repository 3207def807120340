"""A trial of normalisation, augmentation and collation on two samples, before the run starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from rayfl.config.data import Normalization
from rayfl.data.augmentation.augmentation import CANNOT_MOVE, Augmentation, moves_no_labels
from rayfl.data.augmentation.pipeline import pipeline_keys, pipelines
from rayfl.data.batches import BatchSource
from rayfl.data.checks import how_to_make_images
from rayfl.data.dataset import Samples, has_label_maps
from rayfl.data.inputs import Rendered, are_images, are_ragged, kind_of
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


_IMAGES = "is for images, [n, height, width, channels] uint8"


def try_batches(store: ShardStore) -> None:
    """Checks that normalisation, augmentation and collation fit the inputs, and makes a batch of two samples.

    Raises:
        ScenarioError: One of them does not apply to these inputs or is missing, or user code raised an exception.
    """
    train, normalize = store.train, store.normalize
    if are_ragged(train.x) and not store.collate:
        raise ScenarioError(
            f"data.collate: is required, because inputs of {store.name} differ in length ({kind_of(train.x)}); name a "
            "function that makes batches of them, such as 'pad'"
        )
    if isinstance(train.x, Rendered) and store.collate:
        raise ScenarioError(f"data.collate: images of {store.name} are rendered and have one size; leave it out")
    images = not store.collate and are_images(train.x)
    remedy = "" if store.collate else how_to_make_images(train.x)
    why = f"({store.name}: {kind_of(train.x)}" + (", collated)" if store.collate else ")") + remedy
    if images and remedy:
        raise ScenarioError(f"data.name: images must be [n, height, width, channels] {why}")
    if normalize and not images:
        raise ScenarioError(f"data.normalize {_IMAGES}; other inputs reach the model unchanged {why}")
    if normalize and len(normalize.mean) != train.x.shape[-1]:
        raise ScenarioError(
            f"data.normalize: {len(normalize.mean)} values, but inputs have {train.x.shape[-1]} channels"
        )
    views = pipelines(store.augmentations)
    for augment, key, pipeline in zip(store.augmentations, pipeline_keys(len(views)), views, strict=True):
        for index, (chosen, step) in enumerate(zip(augment, pipeline.steps, strict=True)):
            if not images:
                raise ScenarioError(f"{key}.{index}: '{chosen.name}' {_IMAGES} {why}")
            needed = getattr(step, "normalization", None)
            if needed and normalize != Normalization.model_validate(needed):
                raise ScenarioError(
                    f"{key}.{index}: '{chosen.name}' fills with the black of data.normalize = \"{needed}\"; set that, "
                    "or choose another augmentation"
                )
            if fill := getattr(step, "fill", None):
                _check_fill(fill, pipeline.takes_pixels(index), normalize, f"{key}.{index}.fill")
            if train.y.ndim >= 3 and not (isinstance(step, Augmentation) and not step.moves_pixels):
                _check_labels_follow(train, step, f"{key}.{index}: '{chosen.name}'")
    if any(pipeline.steps for pipeline in views) or store.collate:
        # Any label works here; whether the task ignores one is tested with its network.
        source, rows = BatchSource(store, torch.device("cpu"), ignored_label=0), np.arange(min(2, len(train)))
        for view in range(len(views)):
            for _ in source.training_batches(rows, 2, np.random.default_rng(0), view=view):
                pass


def _check_fill(fill: Sequence[float], as_pixels: bool, normalize: Normalization | None, where: str) -> None:
    """A colour in another unit than the images have at that step would be another colour, as 1.0 among 0 to 255."""
    if as_pixels:
        fits, unit = not 0 < max(fill) <= 1, "pixels from 0 to 255 (a later augmentation needs those)"
    else:
        mean, std = (np.array(normalize.mean), np.array(normalize.std)) if normalize else (np.zeros(1), np.ones(1))
        low, high = np.append(-mean / std, 0).min() - 0.01, ((1 - mean) / std).max() + 0.01
        fits = low <= min(fill) and max(fill) <= high
        unit = "normalised values" if normalize else "values from 0 to 1"
    if not fits:
        raise ScenarioError(f"{where}: is {list(fill)}, but there images consist of {unit}; give the colour in these")


def _check_labels_follow(samples: Samples, step: object, what: str) -> None:
    if moves_no_labels(step):
        raise ScenarioError(f"{what} {CANNOT_MOVE}")
    if not has_label_maps(samples):
        raise ScenarioError(
            f"{what} moves pixels, but labels {list(samples.y.shape[1:])} are not maps of images "
            f"{list(samples.x.shape[1:3])} that could move with them; use maps of the size of the images"
        )
