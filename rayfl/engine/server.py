"""The server: holds the global model and the algorithm's memory, and aggregates. Works on vectors alone."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from rayfl.algorithms.exchange import Answers, Exchange, ServerState
from rayfl.config.scenario import Scenario
from rayfl.engine.reduction import HostAnswers, reduce_hosts
from rayfl.engine.turn import Turn


class Server:
    """Runs the rounds of an algorithm, exchange by exchange.

    initial: float32 vector of the initial model; num_params: the length of its parameters' part.
    """

    def __init__(self, scenario: Scenario, initial: np.ndarray, num_params: int, num_clients: int) -> None:
        self._scenario = scenario
        self._algorithms = [phase.build_algorithm() for phase in scenario.phases]
        self._phase = 0
        self._state = ServerState(np.array(initial), num_params, num_clients, {})
        self._round: Generator[Exchange, Answers, None] | None = None

    def begin(self, turn: Turn, cohort: Sequence[int]) -> Exchange:
        """Starts a parallel round; returns its first exchange."""
        if turn.phase != self._phase:
            self._phase, self._state.memory = turn.phase, {}
        self._round = self._algorithms[turn.phase].round(self._state, cohort)
        return next(self._round)

    def receive(self, *parts: HostAnswers) -> tuple[bool, Exchange | None]:
        """Takes the hosts' answers; returns whether the round goes on, and its next exchange.

        Raises:
            RayflError: the sum of the answers is out of the exact sum's range.
        """
        assert self._round is not None
        answers = reduce_hosts(parts, self._scenario.numerics.fraction_bits)
        try:
            return True, self._round.send(answers)
        except StopIteration:
            self._round = None
            return False, None

    def adopt(self, model: np.ndarray) -> None:
        """The model that a relay left becomes the global one."""
        self._state.model = np.array(model)

    def model(self) -> np.ndarray:
        """float32 vector of the global model, as of now."""
        return self._state.model.copy()
