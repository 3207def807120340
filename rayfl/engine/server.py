"""The server: holds the global model and the algorithm's memory, and aggregates. Works on vectors alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence

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
            self._phase = turn.phase
            self._state.model, self._state.memory, self._state.reported = self.model(), {}, None
        self._round, self._received = self._algorithms[turn.phase].round(self._state, cohort), 0
        first = self._step(lambda: next(self._round))
        self._check(first)
        assert first is not None
        return first

    def receive(self, *parts: HostAnswers) -> tuple[bool, Exchange | None]:
        """Takes the hosts' answers; returns whether the round goes on, and its next exchange.

        Raises:
            RayflError: the sum of the answers is out of the exact sum's range.
        """
        answers = reduce_hosts(parts, self._scenario.numerics.fraction_bits)
        following = self._step(lambda: self._round.send(answers))
        self._received += 1
        self._check(following)
        if following is None and not np.isfinite(self.model()).all():
            raise RayflError(
                f"algorithm {type(self._algorithms[self._phase]).__name__}: the server's step left a model with values "
                "that are not finite"
            )
        if following is not None:
            following.number = self._received
        return following is not None, following

    def _step(self, run: Callable[[], Exchange]) -> Exchange | None:
        """The round's next exchange, None at its end."""
        try:
            return run()
        except StopIteration:
            return None
        except RayflError:
            raise
        except Exception:  # an algorithm of a user's own may raise anything
            name = type(self._algorithms[self._phase]).__name__
            raise RayflError(f"algorithm {name}: its round raised on the server\n{traceback.format_exc()}") from None

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
        self._state.model, self._state.reported = np.array(model), None

    def model(self) -> np.ndarray:
        """float32 vector of the model to evaluate and to return: the global one, unless the algorithm has another."""
        reported = self._state.reported
        return np.array(self._state.model if reported is None else reported)
