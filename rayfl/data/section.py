"""The data section of a scenario: names, options and defaults resolved, and a trial on two samples.

Names and options are checked and all defaults filled in without loading data. Normalisation, augmentation and collation
are tried on two samples before the run starts.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np
import torch

from rayfl.config.component import with_defaults
from rayfl.config.data import Data, Normalization
from rayfl.config.registry import Registry, check_callable, first_parameter
from rayfl.config.section import Named
from rayfl.data import augmentations, collations, data_sources, labelings, partitioners
from rayfl.data.augmentation.augmentation import CANNOT_MOVE, Augmentation, moves_no_labels
from rayfl.data.augmentation.pipeline import batch_arguments, is_transform, pipeline_keys, pipelines, split_off_per
from rayfl.data.batches import BatchSource
from rayfl.data.checks import how_to_make_images
from rayfl.data.dataset import Samples, has_label_maps
from rayfl.data.inputs import Rendered, are_images, are_ragged, kind_of
from rayfl.data.partition.split import GIVEN
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore


GIVEN_TO_SOURCES = ("source", "data_dir", "cache_dir", "seed", "clients")


def with_data_defaults(config: Data) -> Data:
    """Returns the data section with all options of its source, partition and augmentations filled in.

    Loads no data. If the scenario sets no partition, none is filled in, since the default depends on the data.

    Raises:
        ScenarioError: A name is unknown or means something else, or an option is unknown, missing or out of range.
    """
    source = data_sources.resolve(config.name)
    options = config.options
    if callable(source):
        chosen = Named.model_validate({**options, "name": config.name})
        options = with_defaults(chosen, source, GIVEN_TO_SOURCES, "data.options").options
    elif options:
        raise ScenarioError(f"data.options: '{config.name}' is not a function and takes no options")
    partition = config.partition
    if partition:
        partitioner = partitioners.resolve(partition.name)
        check_callable(partitioner, f"data.partition: '{partition.name}'", ", not a partitioner")
        partition = with_defaults(partition, partitioner, GIVEN, "data.partition")
    augment = _all_with_defaults(config.augment, "data.augment")
    views = tuple(
        view.model_copy(update={"augment": _all_with_defaults(view.augment, f"data.views.{index}.augment")})
        for index, view in enumerate(config.views)
    )
    found = {"options": options, "partition": partition, "augment": augment, "views": views}
    for key, registry in (("labels_by", labelings), ("collate", collations)):
        chosen = getattr(config, key)
        if chosen:
            found[key] = _of_one_argument(chosen, registry, f"data.{key}")
    return config.model_copy(update=found)


def _of_one_argument(chosen: Named, registry: Registry, where: str) -> Named:
    target = registry.resolve(chosen.name)
    check_callable(target, f"{where}: '{chosen.name}'", ", not a function")
    return with_defaults(chosen, target, first_parameter(target, where), where)


def _all_with_defaults(augment: tuple[Named, ...], where: str) -> tuple[Named, ...]:
    return tuple(_with_defaults(chosen, f"{where}.{index}") for index, chosen in enumerate(augment))


def _with_defaults(chosen: Named, where: str) -> Named:
    target = augmentations.resolve(chosen.name)
    if is_transform(target):
        per, options = split_off_per(chosen, where)
        if inspect.isclass(target):
            plain = Named.model_validate({**options, "name": chosen.name})
            options = with_defaults(plain, target, (), where).options
        return Named.model_validate({**options, "per": per, "name": chosen.name})
    check_callable(target, f"{where}: '{chosen.name}'", ", not an augmentation")
    return with_defaults(chosen, target, batch_arguments(target, chosen), where)


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
    why = f"({store.name}: {kind_of(train.x)}" + (", collated)" if store.collate else ")")
    why += "" if store.collate else how_to_make_images(train.x)
    if normalize and not images:
        raise ScenarioError(f"data.normalize {_IMAGES}; other inputs reach the model unchanged {why}")
    if normalize and len(normalize.mean) != train.x.shape[-1]:
        raise ScenarioError(
            f"data.normalize: {len(normalize.mean)} values, but inputs have {train.x.shape[-1]} channels"
            + how_to_make_images(train.x)
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
            if train.y.ndim >= 3 and not _leaves_pixels(step):
                _check_labels_follow(train, step, f"{key}.{index}: '{chosen.name}'")
    if any(pipeline.steps for pipeline in views) or store.collate:
        # Any label works here; whether the task ignores one is tested with its network.
        source, rows = BatchSource(store, torch.device("cpu"), ignored_label=0), np.arange(min(2, len(train)))
        for view in range(len(views)):
            for _ in source.training_batches(rows, 2, np.random.default_rng(0), view=view):
                pass


def _leaves_pixels(step: object) -> bool:
    return isinstance(step, Augmentation) and not step.moves_pixels


def _check_labels_follow(samples: Samples, step: object, what: str) -> None:
    if moves_no_labels(step):
        raise ScenarioError(f"{what} {CANNOT_MOVE}")
    if not has_label_maps(samples):
        raise ScenarioError(
            f"{what} moves pixels, but labels {list(samples.y.shape[1:])} are not maps of images "
            f"{list(samples.x.shape[1:3])} that could move with them; use maps of the size of the images"
        )
