"""Callbacks that need no settled rounds: rounds run ahead of evaluations, and each is shown with what belongs to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import PrivateAttr
from rich.console import Console

from rayfl.backends import inline
from rayfl.callbacks import callbacks
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.callbacks.ranking import EarlyStopping
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import BackendSession
from rayfl.engine.events import Evaluated, RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import RayflError
from rayfl.runs.follower import Follower
from rayfl.runs.preparation import prepare
from rayfl.runs.records import Records
from rayfl.runs.run import Run
from tests.callbacks.scene import PLAIN, RELAY, STATEFUL, Diary, Notes, StopAt, figures, model_of, run, same, tables
from tests.replay import recorded
from tests.runs.lifecycle.stopping import Moments, stopping_session


class Order(Notes):
    """Also keeps the order of what it is shown."""

    _shown: list[tuple[str, int]] = PrivateAttr(default_factory=list)

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        super().on_round(run)
        self._shown.append(("round", run.round.round))

    def on_evaluation(self, run: RunSoFar) -> None:
        super().on_evaluation(run)
        self._shown.append(("evaluation", run.metrics[-1]["round"]))


class Reader(Callback):
    """Reads the model in a hook, though it declares that it needs no settled rounds."""

    settles = False

    hook: str

    def on_round(self, run: RunSoFar) -> None:
        if self.hook == "on_round":
            run.model()

    def on_evaluation(self, run: RunSoFar) -> None:
        if self.hook == "on_evaluation":
            run.model()


class Impatient(StopAt):
    """Stops the run, though it declares that it needs no settled rounds."""

    settles = False


@pytest.mark.parametrize(
    ("given", "settles"),
    [([], False), ([Notes], False), ([Notes, Diary], True), ([EarlyStopping], True)],
    ids=["none", "reports", "reports, and one that is silent", "early stopping"],
)
def test_rounds_settle_if_a_callback_does_not_say_that_it_needs_none(
    given: list[type[Callback]], settles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans, alone = list[RunPlan](), inline.inline_session

    @contextmanager
    def session(job: RunPlan) -> Iterator[BackendSession]:
        plans.append(job)
        with alone(job) as opened:
            yield opened

    monkeypatch.setattr(inline, "inline_session", session)
    run(tmp_path, callbacks=given, phases=[PLAIN | {"rounds": 1}])
    assert [plan.settles for plan in plans] == [settles]


def test_callbacks_that_only_report_need_no_settled_rounds() -> None:
    reporting = {name for name in callbacks if not callbacks.resolve(name).settles}
    assert reporting == {"live_table", "mlflow", "ray_tune", "tensorboard", "wandb"}


@pytest.mark.parametrize(
    "evaluation",
    [{"every": 1}, {"every": 2}, {"every": 2, "client_model": "personal"}],
    ids=["all", "some", "personal"],
)
def test_a_late_evaluation_is_shown_with_its_own_round(evaluation: dict[str, Any], tmp_path: Path) -> None:
    phases = [PLAIN, STATEFUL | {"algorithm": "ditto"}] if "client_model" in evaluation else [RELAY, PLAIN]
    scene: dict[str, Any] = {"phases": phases, "evaluation": evaluation}
    job, model = prepare(Scenario.from_tables(tables(**scene)), tmp_path)
    order = Order()
    with (
        Records.within(tmp_path / "ahead") as records,
        Run(job, model, records, [order], Console(quiet=True)) as ahead,
    ):
        ahead.connect(stopping_session(job, 2, Moments(), rounds_ahead=2), "inline")
        assert not list(ahead.follow())
        ahead.finish()
    expected = figures(run(tmp_path, **scene))
    rows = [json.loads(line) for line in (tmp_path / "ahead" / "metrics.jsonl").read_text().splitlines()]
    logged = ("seconds", "noted", "twice", "reporting")
    assert [{name: value for name, value in row.items() if name not in logged} for row in rows] == expected
    assert [row["noted"] for row in rows] == [row["round"] for row in expected]
    first = expected[0]["round"]
    assert order._shown.index(("round", first + 1)) < order._shown.index(("evaluation", first))


def test_the_last_round_before_a_stop_is_shown_with_its_evaluation_even_if_later_rounds_come_first(
    tmp_path: Path,
) -> None:
    """As it is in a run that was extended, whose last round was evaluated for being the last."""
    job, recording = recorded()
    scenario = Scenario.from_tables(tables(evaluation={"every": 100}))
    rounds = [event for event in recording if isinstance(event, RoundDone)]
    (evaluated,) = [event for event in recording if isinstance(event, Evaluated) and event.round == 3]

    def follower(notes: Notes) -> Follower:
        return Follower([notes], scenario, job.headlines, tmp_path, Console(quiet=True), dict)

    before, notes = follower(Notes()), Notes()
    for done in rounds[:3]:
        before.add(done)
    after = follower(notes)
    after.restore(json.loads(json.dumps(before.state())))
    after.add(rounds[3])
    assert after.add(evaluated) != evaluated, "it has the scores that are logged"
    assert notes.state() == {"rounds": [1, 2, 3, 4], "evaluated": [3]}
    assert [done["round"] for done in after.state()["unevaluated"]] == []


@pytest.mark.parametrize("settling", [[], [Diary]], ids=["alone", "beside one that settles"])
@pytest.mark.parametrize("hook", ["on_round", "on_evaluation"])
def test_it_cannot_read_a_model_which_may_be_that_of_a_later_round(
    hook: str, settling: list[type[Callback]], tmp_path: Path
) -> None:
    with pytest.raises(RayflError) as caught:
        run(tmp_path, callbacks=[Reader(hook=hook), *settling], phases=[PLAIN])
    assert str(caught.value) == (
        "callback 'Reader': run.model(): with `settles = False` the model may already be that of a later round; set "
        "`settles = True` in its class"
    )


@pytest.mark.parametrize("once_evaluated", [False, True])
def test_it_stops_a_run_after_a_later_round_which_the_records_name(once_evaluated: bool, tmp_path: Path) -> None:
    stopped = run(tmp_path, phases=[PLAIN], callbacks=[Impatient(round=2, once_evaluated=once_evaluated)])
    shorter = run(tmp_path, phases=[PLAIN | {"rounds": 3}])
    assert same(model_of(stopped), model_of(shorter))
    assert figures(stopped) == figures(shorter)
    status = json.loads((stopped.directory / "status.json").read_text())
    assert status["stopped"] == {"callback": "Impatient", "reason": "as told", "round": 3}
    assert (status["status"], status["committed_rounds"], status["model"]["round"]) == ("finished", 3, 3)


def test_a_run_that_ends_before_the_stop_was_not_stopped(tmp_path: Path) -> None:
    whole = run(tmp_path, phases=[PLAIN], callbacks=[Impatient(round=3)])
    assert json.loads((whole.directory / "status.json").read_text())["stopped"] is None
