"""What every federated algorithm is: a round on the server, and what it asks of its clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from rayfl.algorithms.exchange import Answers, Asked, Exchange, Released
from rayfl.algorithms.penalty import Penalty, PenaltyField
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.state import Declaration, merged
from rayfl.config.local import RATE_KEYS, Train
from rayfl.config.phase import EvalModel
from rayfl.errors import ScenarioError
from rayfl.local.requests import Affine, ClientUpdate, LocalTraining
from rayfl.privacy.needs import SampleRequest

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext
    from rayfl.local.data_view import DataView

Requirement = Literal["features", "buffers", "batch_norm", "no_running_statistics", "plain_objective"]
"""What an algorithm may ask of a network: a declared feature layer, buffers, batch norm layers, no running statistics;
or of a task: that what training minimises is its loss alone."""

Round = Generator[Exchange, Answers, None]
"""A round on the server: yields exchanges and receives their reduced answers."""


class Algorithm(BaseModel, ABC):
    """A federated algorithm; its fields are its hyper-parameters, the keys of `algorithm = { name = ..., ... }`.

    An algorithm holds no state: the server's is in `ServerState`, a client's in `ClientContext.state`. A client update
    thus depends only on its inputs and can be repeated anywhere.

    Attributes:
        exchanges: Number of exchanges that a round yields; fixed, so that rounds can be submitted ahead of results.
        trains: Whether its clients train, so that there are trained models to evaluate and to compare.
        trains_only: What of the network it trains; a phase's `train` may restrict it further.
        default_eval_model: Which model is evaluated unless the phase says otherwise.
        only_eval_models: Those that have a meaning; None for all.
        no_relay: Why it cannot run as a relay; empty if it can.
        sent_vectors: Names of the answers' vectors that begin with all parameters; transforms apply to these.
        reports: What it can report beside `step` and `divergence` where `phases.N.report` asks for it (`context.asked`,
            `client.asked`).
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
        """Returns who answers each of a round's exchanges: the cohort, unless an exchange is `at_server`."""
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

    def no_sample_dp(self) -> str:
        """Returns why its clients cannot have `local.dp`; empty if they can.

        Every request of theirs is then clipped sample by sample, noised and charged, so that whatever they answer and
        keep is private. Requests that cannot be (loss terms of a batch, Hessian-vector products), and losses that
        clipping and noise would make useless, are reasons why not.
        """
        return ""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        """Returns which requests of a client's part in a round touch its samples, to plan what `local.dp` will spend.

        A round that spends more than these is an error where noise or budget depend on the plan.
        """
        return (SampleRequest(),)

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

    def releases(self) -> Released:
        """Returns what clients answer with in the only exchange of a round, for `phases.N.dp`.

        All of it is clipped as one vector, summed and noised, every client has the weight 1, and the server's part of
        the round sees nothing else of the clients.

        Raises:
            ScenarioError: With these options clients release something else than vectors that may be clipped and
                averaged alike; says what, and what to use instead.
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


class LocalTrainingAlgorithm(Algorithm):
    """An algorithm whose clients train with penalties, whatever the server makes of their models.

    Attributes:
        penalties: Terms added to the local objective: `proximal`, `contrastive`, `decorrelation`, or your own.
        buffers: Which batch-norm buffers a client starts from. `average`: the server's, the mean of what clients
            returned (MOON, NIID-Bench). `keep`: the client's own from its last update, never sent (FedBN). `reset`: the
            network's initial ones. In all cases the server averages the returned buffers for evaluation.
    """

    local_options: ClassVar[frozenset[str]] = frozenset({"penalties", "buffers"})

    penalties: tuple[PenaltyField, ...] = ()
    buffers: Literal["average", "keep", "reset"] = "average"

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        return (yield from self.train(client, model))

    def train(
        self,
        client: ClientContext,
        model: torch.Tensor,
        gradient: tuple[Affine, ...] = (),
        after_step: tuple[Affine, ...] = (),
        weight_decay: float = 0.0,
        data: DataView | None = None,
    ) -> Generator[LocalTraining, torch.Tensor, torch.Tensor]:
        """Trains from a model vector with the algorithm's penalties.

        Args:
            client: The client.
            model: float32 [length of the model], what to start from.
            gradient: Further terms added to every gradient before it is clipped.
            after_step: Terms applied as `params -= lr * term` after the optimizer step.
            weight_decay: Added to the weight decay of `local`.
            data: The samples to train on; by default all of the client's.

        Returns:
            The trained model vector.
        """
        start = self.with_buffers(client, model)
        affine = [term for term in (penalty.affine(client, start) for penalty in self.penalties) if term is not None]
        opened = [(penalty, penalty.term(client, start)) for penalty in self.penalties]
        terms = [(penalty, term) for penalty, term in opened if term is not None]
        trained = yield LocalTraining(
            start,
            gradient=(*affine, *gradient),
            after_step=after_step,
            weight_decay=weight_decay,
            terms=tuple(term for _, term in terms),
            reads_features=any(penalty.reads_features() for penalty, _ in terms),
            data=data,
        )
        for penalty in self.penalties:
            penalty.after_training(client, trained)
        if self.buffers == "keep":
            client.state["buffers"] = trained[client.num_params :]
        return trained

    def with_buffers(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        """The model vector with the buffers that the client uses (`buffers`)."""
        if self.buffers == "average":
            return model
        own = client.initial_buffers if self.buffers == "reset" else client.state.get("buffers")
        if own is None:
            return model
        start = model.clone()
        start[client.num_params :] = own
        return start

    def no_sample_dp(self) -> str:
        for penalty in self.penalties:
            if type(penalty).term is not Penalty.term:
                return f"its penalty '{penalty.name}' is a function of the batch, not a sum over samples; leave it out"
        return ""

    def requirements(self) -> set[Requirement]:
        found: set[Requirement] = set()
        if any(penalty.reads_features() for penalty in self.penalties):
            found.add("features")
        if self.buffers != "average":
            found.add("buffers")
        return found

    def has_personal_model(self) -> bool:
        return self.buffers == "keep"

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        return self.with_buffers(client, model)

    def client_state(self) -> Declaration:
        own: Declaration = {"buffers": "phase"} if self.buffers == "keep" else {}
        parts = [(f"penalty '{penalty.name}'", penalty.client_state()) for penalty in self.penalties]
        return merged([("buffers = 'keep'", own), *parts])

    def reads_first_model(self) -> bool:
        return any(penalty.reads_first_model() for penalty in self.penalties)

    def buffers_are_sent(self) -> bool:
        return self.buffers == "average"
