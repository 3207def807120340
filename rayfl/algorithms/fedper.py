"""FedPer: every client has its own head on a body that all clients train together.

Arivazhagan, Aggarwal, Singh and Choudhary, "Federated Learning with Personalization Layers", 2019, alg. 1 and 2.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rayfl.algorithms.personal_parts import PersonalParts
from rayfl.config.local import Train
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from torch import nn


class FedPer(PersonalParts):
    """Clients train body and head together, and send only the body.

    All heads start as the head of the phase's first model; in the paper each client draws its own.

    Attributes:
        keeps: The part that stays on a client: its `head`, or module names, such as those of the paper's last blocks.
            With `body` it is LG-FedAvg's local representation under a global head (Liang et al., "Think Locally, Act
            Globally", 2020).

    Example:
        >>> from torch import nn
        >>> from rayfl.algorithms import FedPer
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> sorted(FedPer(keeps=("2",)).stays_local(network))
        ['2.bias', '2.weight']
    """

    keeps: Train = "head"

    def stays_local(self, network: nn.Module) -> Collection[str]:
        from rayfl.local.selection import select

        try:
            selection = select((self.keeps,), network)
        except ScenarioError as error:
            raise ScenarioError(f"keeps: {str(error).removeprefix('train: ')}") from None
        if selection is None:
            raise ScenarioError("keeps: with 'all' there is nothing to share; see schedule = 'local'")
        return selection.tensors
