"""The server: holds the global model and the algorithm's memory, and aggregates. Works on vectors alone."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from rayfl.algorithms.building import build_algorithms
from rayfl.algorithms.exchange import Answers, Exchange, ServerState
from rayfl.config.scenario import Scenario
from rayfl.engine.reduction import HostAnswers, reduce_hosts
from rayfl.engine.turn import Turn
from rayfl.errors import RayflError


class Server:
    """Runs the rounds of an algorithm, exchange by exchange.

    initial: float32 vector of the initial model; num_params: the length of its parameters' part.
    """

    def __init__(self, scenario: Scenario, initial: np.ndarray, num_params: int, num_clients: int) -> None:
        self._scenario = scenario
        self._algorithms = build_algorithms(scenario)
        self._phase = 0
        self._state = ServerState(np.array(initial), num_params, num_clients, {})
        self._round: Generator[Exchange, Answers, None]
        self._received = 0

    def begin(self, turn: Turn, cohort: Sequence[int]) -> Exchange:
        """Starts a parallel round; returns its first exchange."""
        if turn.phase != self._phase:
            self._phase, self._state.memory = turn.phase, {}
        self._round, self._received = self._algorithms[turn.phase].round(self._state, cohort), 0
        first = next(self._round, None)
        self._check(first)
        assert first is not None
        return first

    def receive(self, *parts: HostAnswers) -> tuple[bool, Exchange | None]:
        """Takes the hosts' answers; returns whether the round goes on, and its next exchange.

        Raises:
            RayflError: the sum of the answers is out of the exact sum's range.
        """
        answers = reduce_hosts(parts, self._scenario.numerics.fraction_bits)
        try:
            following = self._round.send(answers)
        except StopIteration:
            following = None
        self._received += 1
        self._check(following)
        return following is not None, following

    def _check(self, following: Exchange | None) -> None:
        """The scheduler relies on how many exchanges a round is said to have."""
        algorithm = self._algorithms[self._phase]
        if (following is not None) != (self._received < algorithm.exchanges):
            raise RayflError(
                f"algorithm {type(algorithm).__name__}: a round must yield {algorithm.exchanges} exchanges (its "
                f"`exchanges`), this one yields {'more' if following else f'only {self._received}'}"
            )

    def adopt(self, model: np.ndarray) -> None:
        """The model that a relay left becomes the global one."""
        self._state.model = np.array(model)

    def model(self) -> np.ndarray:
        """float32 vector of the global model, as of now."""
        return self._state.model.copy()
