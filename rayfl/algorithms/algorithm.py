"""The base class of all federated algorithms: its rounds on the server, its messages, and its clients' own models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any, ClassVar

from rayfl.algorithms.exchange import Answers, Asked, Exchange, Messages
from rayfl.algorithms.limits import Limits, PrivacyHooks
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.base_phase import EvalModel
from rayfl.config.component import Options
from rayfl.config.local import Local, Train
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext


class MessageHooks:
    """Determines traffic, transforms and the shared part of the model; a base class of every `Algorithm`.

    Attributes:
        sent_vectors: Names of the answers' vectors that begin with all parameters; `transforms` apply to these. By
            default all vectors of that length in the rounds that rayfl tries before a run.
    """

    sent_vectors: ClassVar[tuple[str, ...]] = ("delta",)

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`).

        rayfl sees it in the rounds that it tries before a run; define this if only other rounds read it.
        """
        return False

    def buffers_are_sent(self) -> bool:
        """Whether a message's `model` includes the network's buffers."""
        return True

    def stays_local(self, network: nn.Module) -> Collection[str]:
        """Returns the names of the parameters and buffers that clients keep to themselves and never send.

        Raises:
            ScenarioError: The network does not have what clients should keep.
        """
        return ()


class PersonalModels:
    """Whether clients have personal models, and how to assemble them; a base class of every `Algorithm`."""

    def has_personal_model(self) -> bool:
        """Whether every client has its own model, which `evaluation.client_model = "personal"` evaluates."""
        return False

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        """Assembles a client's own model.

        Args:
            client: The client, with its state after the last committed round.
            model: float32 [length of the model], the global model to evaluate; do not change it.

        Returns:
            float32 [length of the model].
        """
        return model


Round = Generator[Exchange, Answers, None]
"""A round on the server: a generator that yields each `Exchange` and receives its `Answers`.

You write one in `Algorithm.round`; rayfl runs it.
"""


class Algorithm(Limits, MessageHooks, PersonalModels, PrivacyHooks, Options, ABC):
    """A federated algorithm; derive from it to write your own. Its fields are its hyperparameters.

    A scenario sets the fields as keys of `algorithm = { name = ..., ... }`.

    An algorithm holds no state: the server's state is in `ServerState`, a client's in `ClientContext.state`. A client
    update therefore depends only on its inputs and can be repeated on any worker.

    You must write `round` and a client update. Before a run, rayfl tries the first, second and last round of the phase
    with one symbolic client, whose requests are answered by vectors of the right length, and so knows what they
    exchange and request; `exchanges`, `asks`, `messages`, `sent_vectors`, `sample_requests` and `reads_first_model`
    are for algorithms that behave otherwise in other rounds or that symbolic values do not pass. Both generators must
    therefore run without side effects. Everything else has defaults, grouped by topic: `Limits` (its requirements and
    limits), `MessageHooks` (the contents of its messages), `PrivacyHooks` (differential privacy), and `PersonalModels`
    (models that clients keep).

    Attributes:
        exchanges: Number of exchanges in a round; by default that of the tried rounds. It is fixed, which lets rayfl
            submit rounds before earlier results arrive.
        trains: Whether clients train, and there are trained models to evaluate and compare.
        trains_only: The part of the network that the algorithm trains; `phases.N.train` may restrict it further.
        default_eval_model: The model that is evaluated unless `phases.N.eval_model` names another.
        reports: Names that `phases.N.report` may ask for in addition to `step` and `divergence`. The algorithm finds
            the requested ones in `context.reports` and `client.reports`.

    Example:
        >>> from rayfl.algorithms import Algorithm, Answer, Exchange
        >>> from rayfl.local import LocalTraining
        >>> class DampedAveraging(Algorithm):
        ...     damping: float = 0.5
        ...
        ...     def client_update(self, client, model):
        ...         trained = yield LocalTraining(model)
        ...         return Answer(client.num_samples, delta=trained - model)
        ...
        ...     def round(self, server, context):
        ...         answers = yield Exchange(self.client_update, server.model)
        ...         change = self.damping * answers.mean("delta")
        ...         server.apply_update(change[: server.num_params], change[server.num_params :])
        >>> DampedAveraging(damping=0.9)
        DampedAveraging(damping=0.9)
    """

    exchanges: ClassVar[int] = 1
    trains: ClassVar[bool] = True
    trains_only: ClassVar[Train] = "all"
    default_eval_model: ClassVar[EvalModel] = "global"
    reports: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def round(self, server: ServerState, context: RoundContext) -> Round:
        """Runs one parallel round: yields exchanges, receives their reduced answers, and updates `server`.

        Args:
            server: A working copy of the global model and the algorithm's state; rayfl keeps it once the round is
                committed.
            context: The round: its cohort, number, learning rate and random stream.

        Yields:
            The same number of exchanges in every round.
        """

    def asks(self) -> tuple[Asked, ...]:
        """Returns the participants of each exchange of a round (`Exchange.at`); define it if rayfl cannot see them."""
        asked: tuple[Asked, ...] = ("cohort",)
        return asked * self.exchanges

    def messages(self) -> Messages:
        """Returns the parts that the server sends to a client and receives, for each exchange that the cohort answers.

        These are `down` and `up` of each `Exchange`, which rayfl sees in the rounds that it tries; the phase's first
        may differ from the later ones. Define this if it cannot see them. The phase's first model, which some penalties
        read (`reads_first_model`), is added and not listed. The virtual clock of [participation] plans with them, and a
        round that transfers anything else raises an error.

        Raises:
            ScenarioError: The traffic cannot be known beforehand; the message says why.
        """
        return [(("model",), ("model",))] * self.asks().count("cohort")

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        """Runs one client's part of a relay (sequential, cyclic training).

        Args:
            client: The client.
            model: float32 [length of the model], the model vector from the previous client.

        Returns:
            The model vector for the next client.
        """
        trained: torch.Tensor = yield LocalTraining(model)
        return trained

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the numbers of samples that clients train on; the others serve other purposes, such as queries.

        Args:
            sizes: int64 [clients], the number of training samples of each client.

        Returns:
            int64 [clients]; by default `sizes`.
        """
        return sizes

    def check_training(self, task: Any, local: Local, sizes: np.ndarray) -> None:
        """Checks that the algorithm fits the task, local training and the clients' sample counts.

        Args:
            task: The phase's `rayfl.tasks.Task`.
            local: The phase's local training options.
            sizes: int64 [clients], as returned by `training_sizes`.

        Raises:
            ScenarioError: They do not fit; the message names the key.
        """

    def client_state(self) -> Declaration:
        """Declares the tensors that clients keep between exchanges, by name, with their scopes."""
        return {}

    def server_state(self) -> Declaration:
        """Declares the arrays that the server keeps between rounds, by name, with their scopes."""
        return {}
