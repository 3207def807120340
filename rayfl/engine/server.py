"""The server: holds the global model and the algorithm's state, and aggregates. Works on vectors alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rayfl.algorithms.exchange import Exchange
from rayfl.algorithms.server_state import ServerState
from rayfl.config.scenario import Scenario
from rayfl.engine.reduction import HostAnswers
from rayfl.engine.server_round import ServerRound
from rayfl.planning.phase_plan import Protection, plan_phases
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.workload import InitialModel

BEFORE = RoundIndex(0, 0, 0)
"""Position before the first round."""


@dataclass(frozen=True)
class ServerSnapshot:
    """The server after a committed round, as plain data.

    Attributes:
        index: The round.
        model: The global model.
        eval_model: The model to evaluate, if not the global one.
        state: The algorithm's state, by name.
    """

    index: RoundIndex
    model: np.ndarray
    eval_model: np.ndarray | None
    state: dict[str, np.ndarray] = field(default_factory=dict)


class Server:
    """Runs the rounds of the phases' algorithms, exchange by exchange.

    A round works on a copy of the latest state, which replaces the kept state when the round is committed. Rounds may
    begin before earlier ones are committed.

    Args:
        scenario: The scenario.
        models: The initial model of each phase; all but the first give way to the previous phase's result.
        num_clients: Number of all clients, for each phase.
        protection: How samples and clients are protected; None if they are not.
    """

    def __init__(
        self,
        scenario: Scenario,
        models: Sequence[InitialModel],
        num_clients: Sequence[int],
        protection: Protection | None = None,
    ) -> None:
        self._scenario, self._models, self._num_clients = scenario, models, num_clients
        self._plans = plan_phases(scenario, protection)
        self._kept = (BEFORE, ServerState(np.array(models[0].vector), models[0].num_params, num_clients[0]))
        self._waiting: dict[int, tuple[RoundIndex, ServerState]] = {}
        self._round: ServerRound

    def begin(self, round_index: RoundIndex, cohort: Sequence[int]) -> Exchange:
        """Starts a parallel round.

        Args:
            round_index: Position of the round within the scenario.
            cohort: The clients that take part, in the order drawn.

        Returns:
            The round's first exchange.

        Raises:
            RayflError: The algorithm raised, or yielded no exchange.
        """
        state = self._staged(round_index)
        self._round = ServerRound(self._scenario, self._plans[round_index.phase], round_index, state)
        return self._round.begin(cohort)

    def receive(self, *parts: HostAnswers) -> tuple[Mapping[str, float], Exchange | None]:
        """Passes the hosts' answers to the round.

        Args:
            parts: The answers to the latest exchange, one part per host.

        Returns:
            The scalars that the round has reported so far, and its next exchange; None at its end.

        Raises:
            RayflError: The answers do not match each other or the model, or the algorithm raised.
            DivergenceError: The server's step left values that are not finite.
        """
        running = self._round
        following = running.receive(parts)
        if following is None:
            self._waiting[running.index.round] = (running.index, running.state)
        return dict(running.state.scalars), following

    def adopt(self, round_index: RoundIndex, model: np.ndarray) -> None:
        """Makes a relay round's model the global one, once the round is committed."""
        state = self._staged(round_index)
        state.model, state.eval_model = np.array(model), None
        self._waiting[round_index.round] = (round_index, state)

    def commit(self, round_index: RoundIndex) -> None:
        """Keeps the state that the round left, now that it is over."""
        self._kept = self._waiting.pop(round_index.round)

    def committed(self, last: int | None = None) -> tuple[int, np.ndarray]:
        """Returns the number of the last committed round and its model to evaluate, float32 [length of the model].

        Where clients keep nothing, a round is over as soon as the server has its model.

        Args:
            last: Where rounds are settled (`Job.settles`), the last one that was reported as done: the server may have
                the model of a later one already, and may have yet to receive the commit of this one.
        """
        if last is not None:
            kept = last <= self._kept[0].round or last not in self._waiting
            index, state = self._kept if kept else self._waiting[last]
            return index.round, np.array(state.evaluated())
        latest = self._latest()
        index, state = self._kept if self._plans[latest[0].phase].keeps_client_state else latest
        return index.round, np.array(state.evaluated())

    def model_after(self, round_index: RoundIndex) -> np.ndarray:
        """float32 [length of the model]: the model to evaluate after a round, committed or not."""
        return np.array(self._state_after(round_index.round).evaluated())

    def model_for(self, phase: int) -> np.ndarray:
        """float32 [length of the phase's model]: what a phase goes on from, after the last round that was run."""
        before, latest = self._latest()
        return self._taken_over(latest.evaluated(), before.phase, phase)

    def snapshot(self) -> ServerSnapshot:
        """The state after the last committed round."""
        index, state = self._kept
        eval_model = None if state.eval_model is None else state.eval_model.copy()
        return ServerSnapshot(index, state.model.copy(), eval_model, dict(state.state))

    def restore(self, snapshot: ServerSnapshot) -> None:
        """Continues after the round of a snapshot."""
        phase = snapshot.index.phase
        kept = ServerState(
            np.array(snapshot.model), self._models[phase].num_params, self._num_clients[phase], dict(snapshot.state),
            dict(self._plans[phase].server_state), snapshot.eval_model,
        )  # fmt: skip
        self._kept, self._waiting = (snapshot.index, kept), {}

    def _taken_over(self, vector: np.ndarray, before: int, phase: int) -> np.ndarray:
        """A copy of a model vector of one phase, laid out as another's."""
        own, others = self._models[phase], self._models[before]
        return np.array(vector) if own is others else own.take(vector, others)

    def _latest(self) -> tuple[RoundIndex, ServerState]:
        return self._waiting[max(self._waiting)] if self._waiting else self._kept

    def _state_after(self, round: int) -> ServerState:
        return self._waiting[round][1] if round in self._waiting else self._kept[1]

    def _staged(self, round_index: RoundIndex) -> ServerState:
        """A working copy of the latest state; a phase begins with the previous phase's evaluated model."""
        before, latest = self._latest()
        state, plan = latest.staged(), self._plans[round_index.phase]
        if before.phase != round_index.phase:
            state.model = self._taken_over(latest.evaluated(), before.phase, round_index.phase)
            state.eval_model, state.num_params = None, self._models[round_index.phase].num_params
            state.num_clients = self._num_clients[round_index.phase]
            declared = self._plans[before.phase].server_state  # lacks what an earlier phase keeps through the run
            state.state = {name: value for name, value in state.state.items() if declared.get(name, "run") == "run"}
        state.declared = dict(plan.server_state)
        return state
