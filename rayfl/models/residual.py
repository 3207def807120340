"""What the residual networks share: the choice of normalisation, and the declaration of their stages and blocks."""

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
        model: The model's name, for messages.
        norm: Batch norm or group norm.
        groups: Number of groups of a group norm.
        narrowest: Smallest number of channels in the network, of which the others are multiples.

    Returns:
        A function from a number of channels to a layer.

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

    Two groupings: "stages" and "blocks", FedBug's "Module" and "Block". In both the stem thaws together with what
    follows it, and the classifier with what precedes it.
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
