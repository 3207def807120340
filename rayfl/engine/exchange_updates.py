"""Runs the client updates of one exchange on one host: opens contexts, stages states, and locates failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch

from rayfl.algorithms.exchange import Asked
from rayfl.engine.client_states import ClientStates
from rayfl.engine.failed_update import UpdateErrors
from rayfl.engine.resident import Resident
from rayfl.errors import ClientError
from rayfl.local.client_state import ClientState
from rayfl.local.client_streams import ClientStreams
from rayfl.local.context import ClientContext, UpdatePlan
from rayfl.local.discrete_buffers import Values
from rayfl.local.requests import ClientUpdate
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex

T = TypeVar("T")

_NO_CLIENT: dict[Asked, str] = {
    "cohort": "central training",
    "server": "the server's samples",
    "host": "the server's work on a worker process",
}
"""Names in errors of updates that are not a client's, by `Exchange.at`."""


class ExchangeUpdates:
    """Runs client updates in isolation, for one exchange of a round or for hops of a relay.

    Args:
        seed: The scenario's seed.
        plan: The phase.
        round_index: The round.
        exchange: Number of the exchange in its round, from 0.
        lr: The learning rate of the exchange's local training in this round.
        resident: The phase's workload on this host.
        states: The states of the host's clients.
        host: The host's number, for errors.
        num_values: Number of values that the phase trains.
        first_model: The phase's first model on the device, if the algorithm asked for it.
        committed: By client, the last committed round that left it a state; clients without state are omitted.
    """

    def __init__(
        self,
        seed: int,
        plan: PhasePlan,
        round_index: RoundIndex,
        exchange: int,
        lr: float,
        resident: Resident,
        states: ClientStates,
        host: int,
        num_values: int,
        first_model: torch.Tensor | None = None,
        committed: Mapping[int, int] | None = None,
    ) -> None:
        asked = plan.asked[exchange]
        self._plan, self._round_index, self._exchange = plan, round_index, exchange
        self._seed, self._resident, self._states = seed, resident, states
        self._declared = plan.client_state if asked == "cohort" else {}
        self._committed = (committed or {}) if plan.keeps_client_state else None
        self._update = UpdatePlan(
            plan.local(exchange),
            lr,
            plan.train,
            num_values,
            first_model,
            frozenset(plan.phase.settings.report),
            plan.keeps_momentum,
        )
        self._errors = UpdateErrors(host, plan.phase.name, round_index.round)
        self._errors_of_pool = UpdateErrors(host, plan.phase.name, round_index.round, _NO_CLIENT[asked])

    def run(
        self, group: Sequence[int], update: Callable[[ClientContext], ClientUpdate[T]], discrete: Values
    ) -> list[T]:
        """Runs the updates of clients that may train at once, and stages the states that they leave.

        Args:
            group: The clients' numbers, or only the number of a pool of samples.
            update: Begins a client's update.
            discrete: The integer and boolean buffers that they begin with.

        Returns:
            The updates' results.

        Raises:
            ClientError: An update failed, or all of them together.
        """
        pool = group[0] >= self._resident.workload.store.num_clients
        errors, clients = self._errors_of_pool if pool else self._errors, []
        for client in group:
            with errors.of_client(client):
                clients.append(self._context(client, discrete))
        try:
            results = self._resident.run(clients, update, errors)
        except ClientError as error:
            raise self._explained(error) from None
        for opened in clients if self._declared else ():
            with errors.of_client(opened.id):
                self._states.stage(opened.id, self._round_index.round, opened.state)
        return results

    def _explained(self, error: ClientError) -> ClientError:
        """Blames the data rather than the learning rate if a client's samples are not finite and need not be hidden."""
        hidden = self._plan.hiding is not None or self._update.local.dp is not None
        why = self._resident.not_finite(error.client) if error.diverged and not hidden else ""
        return ClientError(error.client, error.host, error.phase, error.round, why, who=error.who) if why else error

    def _context(self, client: int, discrete: Values) -> ClientContext:
        plan, resident, kept = self._plan, self._resident, {}
        if self._declared:
            device = resident.model.vector.device
            kept = self._states.open(client, self._round_index, self._exchange, self._committed, device)
        return resident.context(
            client,
            self._update,
            ClientStreams(self._seed, plan.number, self._round_index.round, self._exchange, client),
            ClientState(kept, frozenset(self._declared)),
            plan.noise_multiplier(client) if self._update.local.dp else None,
            discrete,
            plan.hidden_by,
        )
