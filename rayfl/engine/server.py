"""The server: holds the global model and the algorithm's state, and aggregates. Works on vectors alone."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.eval_model import Trained
from rayfl.algorithms.exchange import MORE_IF_SUMMED, Answers, Exchange
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.server_training import followed_by_training
from rayfl.config.scenario import Scenario
from rayfl.engine.phase_plan import PhasePlan, plan_phases
from rayfl.engine.reduction import HostAnswers, reduce_hosts
from rayfl.engine.round_index import RoundIndex
from rayfl.engine.workload import InitialModel
from rayfl.errors import DivergenceError, RayflError
from rayfl.privacy.clients.mechanism import ClientMechanism
from rayfl.privacy.clients.noised_sums import bound_of, noised
from rayfl.streams import stream
from rayfl.user_code import their_traceback

BEFORE = RoundIndex(0, 0, 0)
"""Position before the first round."""


@dataclass
class _RoundUnderWay:
    """A round in progress: the algorithm's generator and its working copy of the state."""

    index: RoundIndex
    state: ServerState
    steps: Round
    before: Mapping[str, Any]
    received: int = 0
    sent: np.ndarray | None = None
    trained: list[Trained] = field(default_factory=list)
    start: np.ndarray | None = None
    diagnosed: Answers | None = None


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
        client_privacy: How each phase hides its clients; empty if none does.
    """

    def __init__(
        self,
        scenario: Scenario,
        models: Sequence[InitialModel],
        num_clients: Sequence[int],
        client_privacy: Sequence[ClientMechanism | None] = (),
    ) -> None:
        self._client_privacy = client_privacy or [None] * len(models)
        self._scenario, self._models, self._num_clients = scenario, models, num_clients
        self._plans = plan_phases(scenario)
        self._kept = (BEFORE, ServerState(np.array(models[0].vector), models[0].num_params, num_clients[0]))
        self._waiting: dict[int, tuple[RoundIndex, ServerState]] = {}
        self._round: _RoundUnderWay

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
        plan, state = self._plans[round_index.phase], self._staged(round_index)
        hiding = self._client_privacy[round_index.phase]
        context = RoundContext(
            cohort=() if plan.phase.hides_cohort else cohort,
            round=round_index.round,
            round_in_phase=round_index.round_in_phase,
            lr=round_index.lr(self._scenario),
            stream=stream(self._scenario.seed, "server", round_index.phase, round_index.round),
            asked=frozenset(plan.phase.report),
            clip_norm=bound_of(hiding, state) if hiding else None,
        )
        if plan.algorithm.reads_first_model() and "first_model" not in state.state:
            state.keep("first_model", state.model.copy())
        before = plan.evaluated.before_round(state)
        with _errors_of(plan):
            steps = plan.algorithm.round(state, context)
            if plan.phase.server_training and isinstance(steps, Generator):
                steps = followed_by_training(steps, state)
        if not isinstance(steps, Generator):  # an algorithm of a user's own may return anything
            raise RayflError(
                f"algorithm {_name(plan)}: its round must be a generator that yields an Exchange, not return a "
                f"{type(steps).__name__}"
            )
        self._round = _RoundUnderWay(round_index, state, steps, before)
        self._round.start = np.array(state.model) if plan.diagnostics.reads_step else None
        first = self._step(lambda: next(self._round.steps))
        self._check(first)
        assert first is not None
        return first

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
        plan, hiding = self._plans[running.index.phase], self._client_privacy[running.index.phase]
        nobody = plan.phase.hides_cohort and not parts
        exact = None if nobody else reduce_hosts(parts, self._scenario.numerics.fraction_bits)
        if hiding and plan.phase.hides_cohort and plan.asked[running.received] == "cohort":
            noise = stream(self._scenario.seed, "dp noise", running.index.phase, running.index.round)
            answers = noised(hiding, running.state, exact, noise)
        else:
            assert exact is not None
            answers = exact
        if MORE_IF_SUMMED in answers.sums:
            running.state.report(up_bytes_more_if_summed=answers.sums[MORE_IF_SUMMED][0])
        sent, asked = running.sent, plan.asked[running.received]
        following = self._step(lambda: running.steps.send(answers))
        running.received += 1
        if asked == "cohort" and sent is not None and plan.evaluated.reads(answers):
            running.trained.append((sent, answers))
        if exact is not None and plan.diagnostics.reads(exact):
            running.diagnosed = exact
        self._check(following)
        if following is None:
            self._finish(running)
        else:
            following.number = running.received
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

    def _finish(self, running: _RoundUnderWay) -> None:
        state, plan = running.state, self._plans[running.index.phase]
        plan.evaluated.after_round(state, running.trained, running.index.round_in_phase == 1, **running.before)
        if not np.isfinite(state.model).all() or not np.isfinite(state.evaluated()).all():
            raise DivergenceError(
                f"algorithm {_name(plan)}: the server's step in round {running.index.round} left a model with values "
                "that are not finite; use a smaller learning rate"
            )
        plan.diagnostics.report(state, running.start, running.diagnosed)
        state.state = {name: value for name, value in state.state.items() if state.declared.get(name) != "round"}
        self._waiting[running.index.round] = (running.index, state)

    def _step(self, run: Callable[[], Exchange]) -> Exchange | None:
        """The round's next exchange, None at its end."""
        plan = self._plans[self._round.index.phase]
        try:
            with _errors_of(plan):
                following = run()
        except StopIteration:
            return None
        if not isinstance(following, Exchange):
            raise RayflError(
                f"algorithm {_name(plan)}: its round must yield an Exchange, not a {type(following).__name__}"
            )
        # a copy, since the algorithm steps the model in place when the answers are in
        reads = plan.evaluated.reads_trained and following.send
        self._round.sent = np.array(following.send[0]) if reads else None
        if following.with_first_model:
            following.first_model = self._round.state.state.get("first_model")
        if hiding := self._client_privacy[self._round.index.phase]:
            if following.each:
                raise RayflError(f"algorithm {_name(plan)}: asks for answers one by one, and dp hides them in sums")
            following.clip_norm = bound_of(hiding, self._round.state)
        return following

    def _check(self, following: Exchange | None) -> None:
        """The scheduler submits as many exchanges as the algorithm declares, before it sees any."""
        plan, received = self._plans[self._round.index.phase], self._round.received
        if (following is not None) != (received < len(plan.asked)):
            declared = len(plan.algorithm.asks())
            raise RayflError(
                f"algorithm {_name(plan)}: a round must yield {declared} exchanges (its `exchanges`), "
                f"this one yields {'more' if following else f'only {received}'}"
            )
        if following is not None and following.at_server != (plan.asked[received] == "server"):
            raise RayflError(
                f"algorithm {_name(plan)}: exchange {received} is for the "
                f"{'server' if following.at_server else 'cohort'}, and its `asks()` says otherwise"
            )


@contextmanager
def _errors_of(plan: PhasePlan) -> Iterator[None]:
    """Names the algorithm in what it raises."""
    try:
        yield
    except (RayflError, StopIteration):
        raise
    except Exception as error:  # a user's algorithm may raise anything
        raise RayflError(f"algorithm {_name(plan)}: its round raised on the server\n{their_traceback(error)}") from None


def _name(plan: PhasePlan) -> str:
    return type(plan.algorithm).__name__
