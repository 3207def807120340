"""What every federated algorithm is: a round on the server, and what it asks of its clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from rayfl.algorithms.exchange import Answers, Asked, Exchange, Released
from rayfl.algorithms.sample_request import SampleRequest
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.state import Declaration
from rayfl.config.local import RATE_KEYS, Train
from rayfl.config.phase import EvalModel
from rayfl.errors import ScenarioError
from rayfl.local.requests import ClientUpdate, LocalTraining

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext

Requirement = Literal["features", "buffers", "batch_norm", "no_running_statistics", "plain_objective"]
"""What an algorithm may ask of a network: a declared feature layer, buffers, batch norm layers, no running statistics;
or of a task: that what training minimises is its loss alone."""

Round = Generator[Exchange, Answers, None]
"""A round on the server: yields exchanges and receives their reduced answers."""


class Algorithm(BaseModel, ABC):
    """A federated algorithm; its fields are its hyper-parameters, the keys of `algorithm = { name = ..., ... }`.

    An algorithm holds no state: the server's is in `ServerState`, a client's in `ClientContext.state`. A client update
    thus depends only on its inputs and can be repeated anywhere.

    What an algorithm needs or rules out it declares, so that scenarios are checked before anything starts. For privacy
    there are three declarations: `no_sample_dp` and `sample_requests` for that of samples (`local.dp`), `releases` for
    that of clients (`phases.N.dp`).

    Attributes:
        exchanges: Number of exchanges that a round yields; fixed, so that rounds can be submitted ahead of results.
        trains: Whether its clients train, so that there are trained models to evaluate and to compare.
        trains_only: What of the network it trains; a phase's `train` may restrict it further.
        default_eval_model: Which model is evaluated unless the phase says otherwise.
        only_eval_models: Those that have a meaning; None for all.
        no_relay: Why it cannot run as a relay; empty if it can.
        sent_vectors: Names of the answers' vectors that begin with all parameters; transforms apply to these.
        reports: What it can report beside `step` and `divergence` where `phases.N.report` asks for it (read as
            `context.reports` and `client.reports`).
        local_options: Names of the fields that affect local training and so have an effect in a relay; all others must
            keep their defaults there.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    exchanges: ClassVar[int] = 1
    trains: ClassVar[bool] = True
    trains_only: ClassVar[Train] = "all"
    default_eval_model: ClassVar[EvalModel] = "global"
    only_eval_models: ClassVar[tuple[EvalModel, ...] | None] = None
    no_relay: ClassVar[str] = ""
    sent_vectors: ClassVar[tuple[str, ...]] = ("delta",)
    reports: ClassVar[tuple[str, ...]] = ()
    local_options: ClassVar[frozenset[str]] = frozenset()

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

    def requirements(self) -> set[Requirement]:
        """Returns what the network must have, or must not have; checked before anything starts."""
        return set()

    def local_keys(self) -> frozenset[str] | None:
        """Returns which keys of `local` its clients read; None for all.

        The others must keep their defaults, and so must `phases.N.train`, which `LocalTraining` alone follows.
        """
        return None if self.trains else RATE_KEYS

    def assumes_sgd(self) -> str:
        """Returns why clients can train by plain SGD alone (`local.optimizer = "sgd"`); empty if by any optimizer."""
        return ""

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Checks that cohorts of these sizes make sense; before anything starts, where the sizes are known by then.

        Raises:
            ScenarioError: They do not; begins with the option that asks for others.
        """

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Returns how many of their training samples clients train on.

        Args:
            sizes: [clients] int64, the training samples of every client.

        Returns:
            [clients] int64; by default all of them.
        """
        return sizes

    def check_clients(self, sizes: np.ndarray) -> None:
        """Checks that clients of these sizes can take part; before anything starts.

        Args:
            sizes: [clients] int64, the training samples of every client.

        Raises:
            ScenarioError: One cannot.
        """

    def check_server(self, samples: int, largest_cohort: int) -> None:
        """Checks that the server's samples suffice, where an exchange is about them; before anything starts.

        Args:
            samples: How many there are.
            largest_cohort: The largest number of clients that a round can have.

        Raises:
            ScenarioError: They do not.
        """

    def no_sample_dp(self) -> str:
        """Returns why `local.dp` does not work with the algorithm; empty if it does.

        With `local.dp`, every request of a client (training, losses, gradients) is clipped sample by sample, noised and
        charged to its account, so that whatever the client answers or keeps is private without further code. Give a
        reason where that cannot be done (loss terms of a whole batch, Hessian-vector products), or where noise would
        leave nothing of use.
        """
        return ""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        """Returns what a client update of a round asks of the client's samples, one entry per request.

        It is what `local.dp` plans with: the noise for a `target_epsilon`, and who may still take part under a
        `max_epsilon`. By default, one local training. An algorithm that first asks for the gradient over all samples
        returns `(SampleRequest("query"), SampleRequest())`. A round that spends more ends the run.
        """
        return (SampleRequest(),)

    def releases(self) -> Released:
        """Returns the names and lengths of the vectors that clients answer with, for `phases.N.dp`.

        By declaring them an algorithm promises that its server works with noised sums alone: the vectors of a client
        are clipped as one, all clients have the weight 1, and a round asks its cohort once. FedAvg returns
        `Released({"delta": "model"})`.

        Raises:
            ScenarioError: Clients answer with something else; says with what, and what to use instead. So does every
                algorithm that declares nothing.
        """
        raise ScenarioError(
            f"{type(self).__name__} does not declare what its clients release; define releases() where clipped sums of "
            "equal weight are enough for it"
        )

    def client_state(self) -> Declaration:
        """Returns what clients keep, by name."""
        return {}

    def server_state(self) -> Declaration:
        """Returns what the server keeps, by name."""
        return {}

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`)."""
        return False

    def buffers_are_sent(self) -> bool:
        """Whether a message's `model` includes the network's buffers."""
        return True

    def stays_local(self, module: nn.Module) -> bool:
        """Whether clients keep this module's own parameters and buffers to themselves: they are in nobody's message."""
        return False

    def has_personal_model(self) -> bool:
        """Whether every client has a model of its own, which `evaluation.client_model = "personal"` scores."""
        return False

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        """Assembles a client's own model.

        Args:
            client: The client, with the state that it kept after the last committed round.
            model: float32 [length of the model], the global model to evaluate; it must not be changed.

        Returns:
            float32 [length of the model].
        """
        return model
