"""Calls the callbacks of a run in order, and passes on their logged values and decisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rayfl.callbacks.callback import Callback, Ending, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.config.section import check_plain
from rayfl.engine.columns import metrics_row
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.engine.plain_events import plain_round, round_from
from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.rounds import RoundIndex, is_evaluated
from rayfl.errors import ClientError, RayflError
from rayfl.wording import report_as_theirs

if TYPE_CHECKING:
    from torch import Tensor


class Follower:
    """The callbacks of one run.

    Args:
        callbacks: The callbacks, in the order in which they are called.
        scenario: The run's scenario.
        headlines: The metric that ranks the rounds of each phase; the last phase's ranks the run.
        folder: The run's folder.
        console: Where progress is printed.
        read_model: Returns the model of the last committed round, in PyTorch's names.
        rows: The rows that metrics.jsonl already holds.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        scenario: Scenario,
        headlines: Mapping[str, Headline],
        folder: Path,
        console: Console,
        read_model: Callable[[], Mapping[str, Tensor]],
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._callbacks = callbacks
        headline = headlines[scenario.phases[-1].name]
        self._run = RunSoFar(scenario, headline, folder, console, self._model, metrics=list(rows), headlines=headlines)
        self._phases = [phase.name for phase in scenario.phases]
        self._unevaluated: dict[int, RoundDone] = {}
        self._read_model = read_model
        self._caller: Callback | None = None
        self._started = False

    def state(self) -> dict[str, Any]:
        """See `EventConsumer`.

        Raises:
            RayflError: A callback raised, or its state is not plain data; names it.
        """
        states = []
        for number, callback in enumerate(self._callbacks):
            state, named = _called(callback, "state"), number < len(self._run.scenario.callbacks)
            try:
                check_plain(state)
                plain = json.loads(json.dumps(state))
                states.append({"callback": _name(callback), "state": plain, "named": named})
            except ValueError as error:
                raise RayflError(f"callback '{_name(callback)}': state: cannot be stored as JSON: {error}") from None
        return {
            "round": self._run.round and plain_round(self._run.round),
            "unevaluated": [plain_round(done) for done in self._unevaluated.values()],
            "callbacks": states,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `EventConsumer`. Callbacks that are new to the run start without a state.

        The state of a callback that the scenario named before, and does not name now, is dropped.

        Raises:
            RayflError: A callback raised, or one that a program passed in and that stored a state is missing; names it.
        """
        self._unevaluated = {done.round: done for done in map(round_from, state["unevaluated"])}
        if state["round"]:
            latest = self._run.round = round_from(state["round"])
            self._unevaluated[latest.round] = latest  # it may have been the last one, and its evaluation is to come
        waiting = list(self._callbacks)
        for stored in state["callbacks"]:
            callback = next((callback for callback in waiting if _name(callback) == stored["callback"]), None)
            if callback is not None:
                waiting.remove(callback)
                _called(callback, "load_state", stored["state"])
            elif stored["state"] and not stored.get("named"):
                raise RayflError(
                    f"callback '{stored['callback']}' has followed this run so far and stored a state, but is missing: "
                    "name it again"
                )

    def start(self) -> None:
        """Calls `on_start`.

        Raises:
            RayflError: A callback raised; names it.
        """
        self._started = True
        for callback in self._callbacks:
            callback._has_followed = True
        self._call("on_start")

    def add(self, event: Event) -> Event:
        """Shows an event to the callbacks.

        Returns:
            The event with the values that they logged.

        Raises:
            RayflError: A callback raised; names it.
        """
        match event:
            case RoundDone():
                self._run.round = event
                logged = self._call("on_round")
                event = replace(event, scalars={**event.scalars, **logged})
                self._run.round = event
                if self._is_due(event):
                    self._unevaluated[event.round] = event
            case Evaluated():
                done = self._unevaluated.get(event.round, self._run.round)
                assert done is not None
                assert done.round == event.round
                self._unevaluated = {round: later for round, later in self._unevaluated.items() if round > event.round}
                return self._evaluated(done, event) if self._callbacks else event
        return event

    def _evaluated(self, done: RoundDone, event: Evaluated) -> Evaluated:
        """Shows an evaluation with its own round, after which later ones may have been reported."""
        latest, self._run.round = self._run.round, done
        try:
            self._run.metrics.append(metrics_row(done, event))
            self._run.undefined = frozenset(name for name, value in event.scores.items() if value is None)
            event = replace(event, scores={**event.scores, **self._call("on_evaluation")})
            self._run.metrics[-1] = metrics_row(done, event)
        finally:
            self._run.round = latest
        return event

    def _is_due(self, done: RoundDone) -> bool:
        """Whether a round will be evaluated; any other is only as the last one of a run or phase that ends early."""
        index = RoundIndex(self._phases.index(done.phase), done.round, done.round_in_phase)
        return is_evaluated(index, self._run.scenario)

    @property
    def stopped(self) -> tuple[str, str] | None:
        """The callback that decided to end the run, if one did, and its reason."""
        return self._run.stopped

    def decided_by(self, name: str) -> str | None:
        """The column that the callback of a name declares to decide by."""
        named = (callback for callback in self._callbacks if _name(callback) == name)
        return next((callback.decides_by(self._run.headlines) for callback in named), None)

    def end(self, ending: Ending) -> list[str]:
        """Calls `on_end` of every callback, even if others raise.

        Returns:
            One message for each callback that raised.
        """
        self._run.ended = ending
        raised = []
        for callback in self._callbacks if self._started else ():
            self._caller = callback
            try:
                callback.on_end(self._run)
            except (Exception, SystemExit) as error:
                raised.append(_theirs(callback, "on_end", error))
        return raised

    def _model(self) -> Mapping[str, Tensor]:
        """The model for `RunSoFar.model`, which a callback may read that needs rounds to settle.

        Raises:
            RayflError: The callback does not: the server may already have the model of a later round.
        """
        assert self._caller is not None
        if not self._caller.settles:
            raise RayflError(
                "run.model(): with `settles = False` the model may already be that of a later round; set "
                "`settles = True` in its class"
            )
        return self._read_model()

    def _call(self, hook: str) -> dict[str, float]:
        """Calls one method of every callback, and returns the values that they logged."""
        self._run.logged = {}
        for callback in self._callbacks:
            self._run.caller, self._caller = _name(callback), callback
            _called(callback, hook, self._run)
        return self._run.logged


def _called(callback: Callback, method: str, *arguments: Any) -> Any:
    try:
        return getattr(callback, method)(*arguments)
    except ClientError:  # a requested model was never computed
        raise
    except RayflError as error:
        raise type(error)(f"callback '{_name(callback)}': {error}") from None
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        raise RayflError(_theirs(callback, method, error)) from None


def _theirs(callback: Callback, hook: str, error: BaseException) -> str:
    return report_as_theirs(error, f"callback '{_name(callback)}': {hook}")


def _name(callback: Callback) -> str:
    return callback.name or type(callback).__qualname__
