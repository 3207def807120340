"""What every federated algorithm is: a round on the server, and what it asks of its clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from rayfl.algorithms.exchange import Answers, Asked, Exchange, Messages
from rayfl.algorithms.limits import Limits
from rayfl.algorithms.message_hooks import MessageHooks
from rayfl.algorithms.personal_models import PersonalModels
from rayfl.algorithms.privacy_hooks import PrivacyHooks
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.base_phase import EvalModel
from rayfl.config.local import Local, Train
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import numpy as np
    import torch

    from rayfl.local.context import ClientContext

Round = Generator[Exchange, Answers, None]
"""A round on the server: yields exchanges and receives their reduced answers."""


class Algorithm(Limits, MessageHooks, PersonalModels, PrivacyHooks, BaseModel, ABC):
    """A federated algorithm; its fields are its hyper-parameters, the keys of `algorithm = { name = ..., ... }`.

    An algorithm holds no state: the server's is in `ServerState`, a client's in `ClientContext.state`. A client update
    thus depends only on its inputs and can be repeated anywhere.

    `round` and a client update are all that it needs. What else it may say is grouped: what it needs and rules out in
    `Limits`, what its messages hold in `MessageHooks`, what privacy has to hide in `PrivacyHooks`, and models that
    clients keep in `PersonalModels`.

    Attributes:
        exchanges: Number of exchanges that a round yields; fixed, so that rounds can be submitted ahead of results.
        trains: Whether its clients train, so that there are trained models to evaluate and to compare.
        trains_only: What of the network it trains; a phase's `train` may restrict it further.
        default_eval_model: Which model is evaluated unless the phase says otherwise.
        reports: What it can report beside `step` and `divergence` where `phases.N.report` asks for it (read as
            `context.reports` and `client.reports`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    exchanges: ClassVar[int] = 1
    trains: ClassVar[bool] = True
    trains_only: ClassVar[Train] = "all"
    default_eval_model: ClassVar[EvalModel] = "global"
    reports: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def round(self, server: ServerState, context: RoundContext) -> Round:
        """Runs one parallel round: yields exchanges, receives their reduced answers, and updates `server`.

        Args:
            server: A working copy of the global model and the algorithm's state.
            context: The round: its cohort, number, learning rate and random stream.

        Yields:
            `exchanges` exchanges.
        """

    def asks(self) -> tuple[Asked, ...]:
        """Returns who answers each of a round's exchanges: the cohort, unless an `Exchange` says otherwise."""
        asked: tuple[Asked, ...] = ("cohort",)
        return asked * self.exchanges

    def messages(self) -> Messages:
        """Returns what the server sends to a client and gets back, for each exchange that the cohort answers.

        That is `down` and `up` of the `Exchange`, in every round, by default the model both times. The virtual clock of
        [participation] is planned with it; a round that moves anything else ends the run.

        Raises:
            ScenarioError: It cannot be said beforehand; says why.
        """
        return [(("model",), ("model",))] * self.asks().count("cohort")

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        """Runs one client's part of a relay.

        Args:
            client: The client.
            model: float32 [length of the model], the model vector that the previous client produced.

        Returns:
            The model vector for the next client.
        """
        trained: torch.Tensor = yield LocalTraining(model)
        return trained

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Returns how many of their training samples clients train on.

        Args:
            sizes: [clients] int64, the training samples of every client.

        Returns:
            [clients] int64; by default all of them.
        """
        return sizes

    def check_training(self, task: Any, local: Local, sizes: np.ndarray) -> None:
        """Compares the algorithm with what clients learn, how they train, and how many samples they train on.

        Args:
            task: The phase's `rayfl.tasks.Task`.
            local: The phase's local training.
            sizes: [clients] int64, as `training_sizes` gives them.

        Raises:
            ScenarioError: They do not fit; the message names the key.
        """

    def client_state(self) -> Declaration:
        """Returns what clients keep, by name."""
        return {}

    def server_state(self) -> Declaration:
        """Returns what the server keeps, by name."""
        return {}
