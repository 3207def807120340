"""The view that an algorithm has of a client during a client update, with the client's random streams."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.config.local import Local, Train
from rayfl.errors import RayflError
from rayfl.local.client_state import ClientState, DiscreteBuffers
from rayfl.local.queries import DataView
from rayfl.local.requests import LocalTraining
from rayfl.local.spending import Mechanism, Spending
from rayfl.local.steps import drawn, effective_steps, other_length, rates, update_steps
from rayfl.models.feature_layer import features_and_outputs
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import followed
from rayfl.streams import client_stream, client_torch_seed


@dataclass(frozen=True)
class ClientStreams:
    """Keys of a client's random streams in one exchange; an algorithm reads it as `ClientContext.streams`.

    Attributes:
        seed: The scenario's seed.
        phase: Position of the phase, from 0.
        round: Position of the round within the scenario, from 1.
        exchange: Position of the exchange within its round, from 0.
        client: The client's number.

    Example:
        >>> from rayfl.local import ClientStreams
        >>> streams = ClientStreams(seed=0, phase=0, round=1, exchange=0, client=7)
        >>> first, again = streams.numpy("my noise"), streams.numpy("my noise")
        >>> bool((first.random(3) == again.random(3)).all())
        True
    """

    seed: int
    phase: int
    round: int
    exchange: int
    client: int

    def numpy(self, purpose: str, request: int = 0) -> np.random.Generator:
        """Returns a NumPy generator for a purpose.

        Args:
            purpose: A name for what is drawn; other names give independent streams.
            request: Counts the requests with this purpose in the exchange, from 0.
        """
        return client_stream(self.seed, purpose, self.phase, self.round, self.client, self.exchange, request)

    def torch_seed(self, purpose: str, request: int = 0) -> int:
        """Returns a 63-bit seed for PyTorch's generators; arguments as for `numpy`."""
        return client_torch_seed(self.seed, purpose, self.phase, self.round, self.client, self.exchange, request)


@dataclass(frozen=True)
class UpdatePlan:
    """Settings of a client update that follow from its phase, round and exchange.

    Attributes:
        local: The phase's local training options, before numbers that differ by client are drawn.
        lr: The round's local learning rate, before `local.lr_schedule`.
        train: Restrictions on the parameters that train, by the algorithm and by the phase.
        num_values: Number of values that the phase trains and therefore sends; None if everything trains.
        first_model: The phase's first global model, if the algorithm asked for it.
        reports: Names of the additional reports (`phases.N.report`).
        keeps_momentum: Whether local training starts with the velocity at which the client's last one ended.
    """

    local: Local
    lr: float
    train: tuple[Train, ...] = ()
    num_values: int | None = None
    first_model: torch.Tensor | None = None
    reports: frozenset[str] = frozenset()
    keeps_momentum: bool = False


@dataclass(frozen=True)
class ClientFacts:
    """Facts about a client before its update.

    Attributes:
        id: The client's number.
        num_samples: Number of training samples.
        relative_size: `num_samples` divided by the mean over all clients.
        streams: Keys of its random streams.
        state: Its named tensors.
        noise_multiplier: The client's own noise multiplier under `local.dp`; None without it.
        planned: What its requests may spend under `local.dp`; None if nothing limits them.
        discrete: The network's integer and boolean buffers that its update begins with; None for the initial ones.
        hidden_by: See `DiscreteBuffers`.
    """

    id: int
    num_samples: int
    relative_size: float
    streams: ClientStreams
    state: ClientState = field(default_factory=lambda: ClientState({}, frozenset()))
    noise_multiplier: float | None = None
    planned: Spending | None = None
    discrete: Mapping[str, torch.Tensor] | None = None
    hidden_by: str = ""


@dataclass(frozen=True)
class ClientNetwork:
    """The network that the clients of a worker train, as their contexts use it.

    Attributes:
        model: The resident model; its values are those of the last training.
        initial_buffers: float32 [length of the buffers], the network's initial buffers.
        random_model: Function from a seed to a freshly initialised model vector.
    """

    model: FlatModel
    initial_buffers: torch.Tensor
    random_model: Callable[[int], torch.Tensor]


class ClientContext:
    """One client in one exchange of a round, or in one hop of a relay.

    You receive it from rayfl as the first argument of a client update; see `Algorithm` for one.

    Attributes:
        id: The client's number.
        data: All of its training samples, as a `DataView`.
        num_samples: Number of training samples.
        relative_size: `num_samples` divided by the mean over all clients.
        num_params: Length of the parameters' part of a model vector, including padding.
        num_values: Number of values that the phase trains and therefore sends.
        local: The phase's local training options; numbers that vary by client and round have been drawn.
        lr: The round's local learning rate, before `local.lr_schedule`.
        train: Restrictions on the parameters that train, by the algorithm and by the phase.
        state: The client's state, which is kept between exchanges.
        first_model: The phase's first global model, if the algorithm asked for it.
        initial_buffers: float32 [length of the buffers], the network's initial buffers.
        streams: Keys of the client's random streams.
        reports: Names of the additional reports (`phases.N.report`).
        keeps_momentum: Whether local training starts with the velocity at which the client's last one ended.
        scalars: Reported scalars, by name.
        sent: The vectors that the exchange sent, the same for every client, or the model that a hop starts from; do not
            change them.
        clip_norm: Under `phases.N.dp`, the bound on the norm of the client's answer; None without it.
        spent: How often each mechanism of `local.dp` has touched the client's samples in this update.
        noise_multiplier: The client's own noise multiplier under `local.dp`; None without it.
        planned: What its requests may spend under `local.dp`; None if nothing limits them.
        discrete: The network's integer and boolean buffers, as the client's requests leave them.
    """

    def __init__(self, plan: UpdatePlan, client: ClientFacts, network: ClientNetwork) -> None:
        self.id, self.num_samples, self.relative_size = client.id, client.num_samples, client.relative_size
        # all exchanges of a round share the drawn numbers
        self.local = drawn(plan.local, lambda purpose: replace(client.streams, exchange=0).numpy(purpose))
        self.lr, self.train = plan.lr, plan.train
        self.streams, self.state, self.noise_multiplier = client.streams, client.state, client.noise_multiplier
        self.planned = client.planned
        self.initial_buffers, self.first_model = network.initial_buffers, plan.first_model
        self.data = DataView(np.arange(client.num_samples))
        self.num_params = len(network.model.params)
        self.num_values = network.model.num_params if plan.num_values is None else plan.num_values
        self.reports, self.keeps_momentum = plan.reports, plan.keeps_momentum
        self.sent: tuple[torch.Tensor, ...] = ()
        self.clip_norm: float | None = None
        self.scalars: dict[str, float] = {}
        self._losses: list[float] = []
        self.spent: Counter[Mechanism] = Counter()
        self._model, self._random_model = network.model, network.random_model
        self.discrete = DiscreteBuffers(network.model, client.discrete, client.state, client.hidden_by)
        self._open = ExitStack()

    def asked_for(self, request: Any) -> ClientContext:
        """Returns the client as a request modifies it: a copy if the request says what to train or for how long."""
        if not isinstance(request, LocalTraining):
            return self
        length = other_length(request.epochs, request.steps)
        if request.train == "all" and not length:
            return self
        client = copy(self)  # state, losses and spending are the same objects
        client.local = self.local.model_copy(update=length)
        client.train = (*self.train, request.train)
        return client

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of every training step so far, in order.

        Raises:
            RayflError: Under `local.dp`, since the losses are not noised and could end up in the answer.
        """
        if self.local.dp is not None:
            raise RayflError(
                "ClientContext.losses cannot be read with local.dp: the losses are not noised; yield Loss(...), which "
                "is noised and charged, and declare it in the algorithm's sample_requests()"
            )
        return tuple(self._losses)

    def add_losses(self, losses: Iterable[float]) -> None:
        """Adds the losses of training steps to those that are reported."""
        self._losses.extend(losses)

    def _losses_for_reports(self) -> tuple[float, int]:
        """Sum and number of the losses, for `UpdateReport` only: under `local.dp` they are not noised."""
        return math.fsum(self._losses), len(self._losses)

    @property
    def steps(self) -> int:
        """Number of local training steps on all samples, as `local` says: K_i."""
        return update_steps(self.local, self.num_samples)

    def effective_steps(self, momentum: float = 0.0, mu: float = 0.0) -> float:
        """Returns ||a||_1 of these steps, where SGD moves the model by lr * sum_k a_k g_k.

        Without either of these it is the sum of the steps' learning rates relative to `lr`, which is K without an
        `lr_schedule`.

        Args:
            momentum: Of SGD; 0 with a proximal term.
            mu: Weight of a proximal term, which pulls the model back to where it began.
        """
        return effective_steps(rates(self.local.lr_schedule, self.steps), momentum, self.lr * mu)

    def frozen_features(self, vector: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """Returns a function from inputs to their features [n, d] under another model, in evaluation mode.

        Args:
            vector: float32 [length of the model]; it must not change during this client update.
        """
        frozen = self._open.enter_context(self._model.frozen_copy(vector, self.discrete.values))

        def features(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return features_and_outputs(frozen.module, x)[0]

        return features

    def places_of(self, chosen: Callable[[nn.Module], Collection[str]]) -> torch.Tensor:
        """Returns the positions of some parameters and buffers in a model vector: bool [length of the model].

        Args:
            chosen: Function from the network to their names.
        """
        places = torch.zeros_like(self._model.vector, dtype=torch.bool)
        for slot in self._model.slots_of(chosen(self._model.module)):
            places[slot.offset : slot.offset + slot.size] = True
        return places

    def places_of_copies(self) -> torch.Tensor:
        """Returns the positions of modules that follow others (`Network.copies`): bool [length of the model]."""
        places = torch.zeros_like(self._model.vector, dtype=torch.bool)
        for slot in self._model.layout:
            if followed(slot.name, getattr(self._model.module, "copies", {})):
                places[slot.offset : slot.offset + slot.size] = True
        return places

    def random_model(self, purpose: str) -> torch.Tensor:
        """Returns a freshly initialised model vector that belongs to the client, the same in every round of a phase."""
        streams = self.streams
        return self._random_model(client_torch_seed(streams.seed, purpose, streams.phase, 0, self.id))

    def report(self, **scalars: float) -> None:
        """Reports named scalars: their mean over the cohort goes to the metrics, each value to the client's records."""
        self.scalars |= {name: float(value) for name, value in scalars.items()}

    def close(self) -> None:
        """Releases the frozen copies that the client update used."""
        self._open.close()
