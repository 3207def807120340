"""What every federated algorithm is: a round on the server, and the hooks of local training at its clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from rayfl.algorithms.exchange import Answers, Exchange, ServerState

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


Need = Literal["features", "no running statistics"]
"""What an algorithm may need of a network: that it declares its feature layer, or that its normalisation keeps no
running statistics, which nobody would average."""


class Algorithm(BaseModel, ABC):
    """A federated algorithm; its fields are its hyper-parameters, the keys of `algorithm = { name = ..., ... }`.

    An algorithm holds no state: the server's is in `ServerState`, a client's in `client.state`, so that a visit
    is a function of what it is given and can be repeated anywhere.

    stateful: clients keep `client.state` from round to round, on a host of their own.
    exchanges: how many exchanges a round yields; known beforehand, rounds can be submitted ahead of their results.
    fixed_last: how many of the network's last modules this algorithm never trains.
    trains: whether its clients train, as `local` says, by `local_update`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stateful: ClassVar[bool] = False
    exchanges: ClassVar[int] = 1
    fixed_last: ClassVar[int] = 0
    trains: ClassVar[bool] = True

    def keeps_state(self) -> bool:
        """Whether clients keep `client.state`; of some algorithms an option decides."""
        return self.stateful

    def needs(self) -> set[Need]:
        """What the network must have; checked before anything starts."""
        return set()

    @abstractmethod
    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        """One parallel round: yields `exchanges` exchanges, receives their reduced answers, and updates `server`."""

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        """One visit: the model vector after local training from `received`. All that a relay uses."""
        return client.train(received, self, self.fixed_last)

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The scalar that a local step minimises on one batch; by default mean cross-entropy."""
        return client.cross_entropy(x, y)

    def gradient_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None:
        """[length of params] added to every local gradient before clipping (a penalty's gradient); None for none."""
        return None

    def step_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None:
        """[length of params] of which lr times is subtracted after every step, past clipping and momentum."""
        return None

    def extra_weight_decay(self, client: Client) -> float:
        """Added to `local.weight_decay`, which clipping does not see."""
        return 0.0
