"""Resolves the data section of a scenario: checks names and options, and fills in all defaults."""

from __future__ import annotations

import inspect

from rayfl.config.data import Data
from rayfl.config.defaults import with_defaults
from rayfl.config.section import Named
from rayfl.data import augmentations, collations, data_sources, labelings, partitioners
from rayfl.data.augmentation.pipeline import batch_arguments, split_off_per
from rayfl.data.augmentation.torchvision_transform import is_transform
from rayfl.data.partition.applying import GIVEN
from rayfl.errors import ScenarioError
from rayfl.registry import Registry, first_parameter

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
        if not callable(partitioner):
            kind = type(partitioner).__name__
            raise ScenarioError(f"data.partition: '{partition.name}' is an object of type {kind}, not a partitioner")
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
    if not callable(target):
        raise ScenarioError(f"{where}: '{chosen.name}' is an object of type {type(target).__name__}, not a function")
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
    if not callable(target):
        kind = type(target).__name__
        raise ScenarioError(f"{where}: '{chosen.name}' is an object of type {kind}, not an augmentation")
    return with_defaults(chosen, target, batch_arguments(target, chosen), where)
