"""A parallel round on the server: drives the algorithm's generator, and checks its exchanges and the new model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import MORE_IF_SUMMED, Answers, Exchange
from rayfl.algorithms.round_results import Trained
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.wrappers import followed_by_training
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.trace import exchange_error
from rayfl.engine.reduction import HostAnswers, counted_from, of_largest, reduce_discounted, reduce_hosts
from rayfl.errors import DivergenceError, RayflError
from rayfl.interruption import is_of_user_code
from rayfl.models.tensors import copied
from rayfl.privacy.clients.mechanism import bound_of, noised
from rayfl.streams import stream
from rayfl.wording import their_traceback


class ServerRound:
    """One parallel round, exchange by exchange.

    Args:
        scenario: The scenario.
        plan: The round's phase.
        index: Position of the round within the scenario.
        state: A working copy of the server's state, which the round changes.
        last: If answers come one after the other, (round in which it began, client) of the last one's update.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: PhasePlan,
        index: RoundIndex,
        state: ServerState,
        last: tuple[int, int] | None = None,
    ) -> None:
        self.index, self.state, self._last = index, state, last
        self._scenario, self._plan, self._hiding = scenario, plan, plan.hiding
        self._steps: Round
        self._before: Mapping[str, Any] = {}
        self._received = 0
        self._sent: np.ndarray | None = None
        self._trained: list[Trained] = []
        self._start: np.ndarray | None = None
        self._diagnosed: Answers | None = None

    def begin(self, cohort: Sequence[int]) -> Exchange:
        """Starts the round.

        Args:
            cohort: The clients that take part, in the order drawn.

        Returns:
            Its first exchange.

        Raises:
            RayflError: The algorithm raised, or yielded no exchange.
        """
        plan, state = self._plan, self.state
        context = RoundContext(
            cohort=() if plan.phase.hides_cohort else cohort,
            round=self.index.round,
            round_in_phase=self.index.round_in_phase,
            lr=self.index.lr(self._scenario),
            decay_round=self.index.decay_round(plan.phase.local),
            stream=stream(self._scenario.seed, "server", self.index.phase, self.index.round),
            reports=frozenset(plan.settings.report),
            clip_norm=bound_of(self._hiding, state) if self._hiding else None,
        )
        if plan.reads_first_model and "first_model" not in state.state:
            state.keep("first_model", state.model.copy())
        self._before = plan.evaluated.before_round(state)
        with _errors_of(plan):
            steps = plan.algorithm.round(state, context)
            if plan.settings.server_training and isinstance(steps, Generator):
                steps = followed_by_training(steps, state)
        if not isinstance(steps, Generator):  # a user's algorithm may return anything
            raise RayflError(
                f"algorithm {_name(plan)}: its round must be a generator that yields an Exchange, not return a "
                f"{type(steps).__name__}"
            )
        self._steps = steps
        self._start = np.array(state.model) if plan.diagnostics.reads_step else None
        first = self._step(lambda: next(self._steps))
        self._check(first)
        assert first is not None
        return first

    def receive(
        self,
        parts: Sequence[HostAnswers],
        discounts: Sequence[float] | None = None,
        base: np.ndarray | None = None,
    ) -> Exchange | None:
        """Passes the hosts' answers to the algorithm.

        Args:
            parts: The answers to the latest exchange, one part per host.
            discounts: Factors for the values of each part's answers; None for 1.
            base: float32 [length of the model], the model that a client began from, if the client's model is mixed with
                the server's; None if changes are added.

        Returns:
            The next exchange; None at the round's end.

        Raises:
            RayflError: The answers do not match each other or the model, or the algorithm raised.
            DivergenceError: The server's step left values that are not finite.
        """
        plan, asked = self._plan, self._plan.asked[self._received]
        empty = plan.phase.hides_cohort and not parts
        exact, bits = None, self._scenario.numerics.fraction_bits
        if not empty:
            exact = reduce_hosts(parts, bits) if discounts is None else reduce_discounted(parts, discounts, bits)
        if base is not None:
            assert exact is not None
            assert discounts is not None
            exact = counted_from(self.state.model, base, discounts[0], exact)
        if self._hiding and plan.phase.hides_cohort and asked == "cohort":
            noise = stream(self._scenario.seed, "dp noise", self.index.phase, self.index.round)
            answers = noised(self._hiding, self.state, exact, noise)
        else:
            assert exact is not None
            answers = exact
        if MORE_IF_SUMMED in answers.sums:
            self.state.report(up_bytes_more_if_summed=answers.sums[MORE_IF_SUMMED][0])
        sent = self._sent
        if buffers := [one for part in parts for one in part.left]:
            latest = [one for one in buffers if (one.round, one.client) == self._last]
            self.state.discrete = copied(of_largest(latest or buffers).values)
        following = self._step(lambda: self._steps.send(answers))
        self._received += 1
        if asked == "cohort" and sent is not None and plan.evaluated.reads(answers):
            self._trained.append((sent, answers))
        if exact is not None and plan.diagnostics.reads(exact):
            self._diagnosed = exact
        self._check(following)
        if following is None:
            self._finish()
        else:
            following.number = self._received
        return following

    def _step(self, run: Callable[[], Exchange]) -> Exchange | None:
        """Returns the next exchange; None at the round's end."""
        plan = self._plan
        try:
            with _errors_of(plan):
                following = run()
        except StopIteration:
            return None
        if not isinstance(following, Exchange):
            raise RayflError(
                f"algorithm {_name(plan)}: its round must yield an Exchange, not a {type(following).__name__}"
            )
        # copies, since the algorithm updates the model in place once it has answers, while clients may still read it
        following.send = tuple(np.array(vector) for vector in following.send)
        self._sent = following.send[0] if plan.evaluated.reads_trained and following.send else None
        following.discrete, following.constants = self.state.discrete, self.state.constants
        if following.with_first_model:
            following.first_model = self.state.state.get("first_model")
        if self._hiding:
            if following.each:
                raise RayflError(
                    f"algorithm {_name(plan)}: requests answers one by one (each=True), but dp only releases sums"
                )
            following.clip_norm = bound_of(self._hiding, self.state)
        return following

    def _check(self, following: Exchange | None) -> None:
        """Checks an exchange against the planned ones, all of which the scheduler submits before it sees any."""
        plan, at = self._plan, following.at if following else None
        if error := exchange_error(plan.asked, self._received, at, len(plan.own_exchanges)):
            raise RayflError(f"algorithm {_name(plan)}: {error}")

    def _finish(self) -> None:
        state, plan = self.state, self._plan
        plan.evaluated.after_round(state, self._trained, self.index.round_in_phase == 1, **self._before)
        if state.model.dtype.kind != "f":
            raise RayflError(
                f"algorithm {_name(plan)}: the server's step in round {self.index.round} left a model of dtype "
                f"{state.model.dtype}, which holds no fractions; make it floating point numbers"
            )
        if not np.isfinite(state.model).all() or not np.isfinite(state.evaluated()).all():
            raise DivergenceError(
                f"algorithm {_name(plan)}: the server's step in round {self.index.round} left a model with values "
                "that are not finite; use a smaller learning rate"
            )
        plan.diagnostics.report(state, self._start, self._diagnosed)
        state.state = {name: value for name, value in state.state.items() if state.declared.get(name) != "round"}


@contextmanager
def _errors_of(plan: PhasePlan) -> Iterator[None]:
    """Names the algorithm in its exceptions."""
    try:
        yield
    except (RayflError, StopIteration):
        raise
    except BaseException as error:  # a user's algorithm may raise anything
        if not is_of_user_code(error):
            raise
        raise RayflError(f"algorithm {_name(plan)}: its round raised on the server\n{their_traceback(error)}") from None


def _name(plan: PhasePlan) -> str:
    return type(plan.algorithm).__name__
