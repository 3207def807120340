"""What of a network a phase leaves as it is: constants beside the vector, and modules in evaluation mode."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from rayfl.config.local import Train
from rayfl.errors import ScenarioError
from rayfl.local.training_plan import Selection, select
from rayfl.models.layout import frozen_parameters
from rayfl.models.tensors import followed

Trainings = Sequence[Train] | None
"""What the trainings on a model are restricted to, a phase's first; None if all that fits belongs into the vector."""


@dataclass(frozen=True)
class FixedPart:
    """The part of a network that a phase does not train.

    Attributes:
        constants: Names of the parameters that are no part of the vector.
        in_vector: Names of the parameters in the vector that the network freezes.
        modules: Names of the outermost modules that compute in evaluation mode during training.
    """

    constants: frozenset[str]
    in_vector: frozenset[str]
    modules: tuple[str, ...]

    def training(self, network: nn.Module) -> nn.Module:
        """Returns the network in the modes in which the phase trains it."""
        network.train()
        for name in self.modules:
            network.get_submodule(name).eval()
        return network


def fixed_part(network: nn.Module, trainings: Trainings, moving: Collection[str] = ()) -> FixedPart:
    """Finds what a phase does not train.

    What it leaves out may change in evaluations nevertheless, by `personalize`, and then is no constant.

    Args:
        network: The network as it was built.
        trainings: See `Trainings`.
        moving: Names of parameters that the network or its task changes, such as those of a layer that initialises
            itself; no constants either.
    """
    frozen, selections = frozen_parameters(network), list[Selection | None]([None])
    parameters = dict(network.named_parameters(remove_duplicate=False))
    if trainings is None:
        constants = {
            name for name in frozen if parameters[name].dtype != torch.float32 or parameters[name].isinf().any()
        }
    else:
        with suppress(ScenarioError):  # which `check_requirements` raises
            selections = [select([one], network) for one in trainings]
        trained = {name for one in selections for name in (parameters if one is None else one.tensors)}
        copies = getattr(network, "copies", {})
        constants = frozen.union(
            name for name in parameters.keys() - trained.union(moving) if not followed(name, copies)
        )
    first = selections[0]
    return FixedPart(frozenset(constants), frozenset(frozen - constants), first.frozen if first else ())
