"""The client updates of one exchange on one host: contexts opened, states kept, failures told with their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from rayfl.config.scenario import Scenario
from rayfl.engine.client_states import ClientStates
from rayfl.engine.failed_update import UpdateErrors
from rayfl.engine.resident import Resident
from rayfl.local.context import ClientContext, ClientState, ClientStreams, UpdatePlan
from rayfl.local.requests import ClientUpdate
from rayfl.planning.phase_plan import PhasePlan, commits_before
from rayfl.planning.round_index import RoundIndex

T = TypeVar("T")


class ExchangeUpdates:
    """Runs client updates in isolation, for one exchange of a round or for hops of a relay.

    Args:
        scenario: What runs.
        plans: One per phase.
        round_index: The round.
        exchange: Number of the exchange in its round, from 0.
        resident: What the phase trains.
        states: Of the host's clients.
        host: The host's number, which errors name.
        num_values: Number of values that the phase trains.
        first_model: The phase's first model, on the device, where the algorithm asked for it.
    """

    def __init__(
        self,
        scenario: Scenario,
        plans: list[PhasePlan],
        round_index: RoundIndex,
        exchange: int,
        resident: Resident,
        states: ClientStates,
        host: int,
        num_values: int,
        first_model: torch.Tensor | None = None,
    ) -> None:
        plan = plans[round_index.phase]
        local, at_server = plan.local(exchange), plan.asked[exchange] == "server"
        self._plan, self._round_index, self._exchange = plan, round_index, exchange
        self._seed, self._resident, self._states = scenario.seed, resident, states
        self._declared = {} if at_server else plan.client_state
        self._commits = commits_before(plans, plan.number, round_index.round_in_phase)
        self._update = UpdatePlan(
            local,
            round_index.lr(scenario, local),
            plan.train,
            num_values,
            first_model,
            frozenset(plan.phase.report),
            plan.evaluated.reads_trained or plan.diagnostics.reads_trained,
        )
        self._errors = UpdateErrors(host, plan.phase.name, round_index.round)
        who = "the server's samples" if at_server else "central training"
        self._errors_of_pool = UpdateErrors(host, plan.phase.name, round_index.round, who)

    def run(self, group: Sequence[int], update: Callable[[ClientContext], ClientUpdate[T]]) -> list[T]:
        """Runs the updates of clients that may train at once, and stages the states that they leave.

        Args:
            group: Their numbers; or that of a pool of samples, alone.
            update: Begins a client's update.

        Returns:
            What each of them returned.

        Raises:
            ClientError: One of them failed, or all of them together.
        """
        pool = group[0] >= self._resident.workload.store.num_clients
        errors, clients = self._errors_of_pool if pool else self._errors, []
        for client in group:
            with errors.of_client(client):
                clients.append(self._context(client))
        results = self._resident.run(clients, update, errors)
        for opened in clients if self._declared else ():
            with errors.of_client(opened.id):
                self._states.stage(opened.id, opened.state)
        return results

    def _context(self, client: int) -> ClientContext:
        plan, resident, kept = self._plan, self._resident, {}
        if self._declared:
            commits = self._commits if plan.keeps_client_state else None
            device = resident.model.vector.device
            kept = self._states.open(client, self._round_index, self._exchange, commits, device)
        return resident.context(
            client,
            self._update,
            ClientStreams(self._seed, plan.number, self._round_index.round, self._exchange, client),
            ClientState(kept, frozenset(self._declared)),
            plan.noise_multiplier(client) if self._update.local.dp else None,
        )
