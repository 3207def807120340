"""Shared parts of the residual networks: the normalisation, and the declaration of stages and blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Literal

from torch import nn

from rayfl.errors import ScenarioError
from rayfl.models.network import Network

Norm = Literal["batch", "group"]


def norm_layer(model: str, norm: Norm, groups: int, narrowest: int) -> Callable[[int], nn.Module]:
    """Chooses the normalisation of a network.

    Args:
        model: The name of the model, for messages.
        norm: Batch norm or group norm.
        groups: Number of groups of a group norm.
        narrowest: Smallest number of channels in the network; the others are multiples of it.

    Returns:
        A function that makes a layer for a number of channels.

    Raises:
        ScenarioError: The groups do not divide the channels.
    """
    if norm == "batch":
        return nn.BatchNorm2d
    if narrowest % groups:
        raise ScenarioError(f"model '{model}': groups = {groups} does not divide its {narrowest} channels evenly")
    return partial(nn.GroupNorm, groups)


def declare(network: Network, blocks_per_stage: Sequence[int]) -> None:
    """Sets the declaration of a network with torchvision's names: `conv1`, `bn1`, blocks `layer1.0` and so on, `fc`.

    The two groupings "stages" and "blocks" are FedBug's "Module" and "Block". In both, the stem thaws together with the
    first unit and the classifier with the last one.
    """
    stages = [
        tuple(f"layer{stage}.{block}" for block in range(blocks)) for stage, blocks in enumerate(blocks_per_stage, 1)
    ]
    blocks = [(block,) for stage in stages for block in stage]
    network.groupings = {"stages": _with_ends(stages), "blocks": _with_ends(blocks)}
    network.ordered_modules = tuple(chain.from_iterable(network.groupings["blocks"]))
    network.feature_layer = "fc"


def _with_ends(units: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    first, *others = units
    *before, last = [("conv1", "bn1", *first), *others]
    return (*before, (*last, "fc"))
