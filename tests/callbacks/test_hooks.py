"""What callbacks are shown, when, and what becomes of what they add or raise."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.callbacks.model_files import BestModel
from rayfl.callbacks.ranking import EarlyStopping
from rayfl.callbacks.selection import check_ranking_metrics
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Evaluated, RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import RayflError, ScenarioError
from rayfl.runs.preparation import prepare
from tests.callbacks.scene import PLAIN, RELAY, Diary, Faulty, model_of, run, tables
from tests.replay import recorded, replayed


class Logging(Callback):
    """Logs a scalar in each hook."""

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        run.log(twice_the_round=2 * run.round.round)

    def on_evaluation(self, run: RunSoFar) -> None:
        run.log(gap=run.metrics[-1]["test_loss"] - run.metrics[-1]["train_loss"])


class Clashing(Callback):
    """Logs what is a column already."""

    def on_evaluation(self, run: RunSoFar) -> None:
        run.log(test_loss=0.0)


def test_hooks_are_called_in_the_order_of_the_rounds_with_the_metrics_so_far(tmp_path: Path) -> None:
    _, recording = recorded()
    events = [event for event in recording if not isinstance(event, Evaluated) or event.round % 4 == 0]
    diary = Diary()
    replayed(tmp_path, diary, events=events)
    kinds = [(entry[0], entry[1]) if isinstance(entry, tuple) else entry for entry in diary.entries()]
    rounds = [("round", round) for round in range(1, 7)]
    assert kinds == ["start", *rounds[:4], ("evaluation", 4), *rounds[4:], ("end", "finished")]
    losses = [entry[2] for entry in diary.entries() if entry[0] == "evaluation"]
    assert losses == [event.scores["test_loss"] for event in events if isinstance(event, Evaluated)]
    assert [entry[3] for entry in diary.entries() if entry[0] == "round"] == [0, 0, 0, 0, 1, 1]


def test_the_model_is_that_of_the_round_in_hand(tmp_path: Path) -> None:
    diary = Diary()
    run(tmp_path, callbacks=[diary], phases=[PLAIN])
    shorter = run(tmp_path, phases=[PLAIN | {"rounds": 3}])
    (seen,) = [entry[4] for entry in diary.entries() if entry[:2] == ("round", 3)]
    assert seen == b"".join(model_of(shorter)[name].tobytes() for name in shorter.state_dict)


def test_values_logged_by_callbacks_join_the_rounds_and_their_scores(tmp_path: Path) -> None:
    done: list[RoundDone] = []
    for event in replayed(tmp_path, Logging()):
        if isinstance(event, RoundDone):
            done.append(event)
            assert event.scalars["twice_the_round"] == 2 * event.round
        elif isinstance(event, Evaluated):
            assert event.scores["gap"] == event.scores["test_loss"] - done[-1].train_loss  # type: ignore[operator]
    assert len(done) == 6


def test_a_logged_scalar_of_the_name_of_a_column_is_rejected_and_the_callback_named(tmp_path: Path) -> None:
    with pytest.raises(RayflError, match="callback 'Clashing': logs 'test_loss', but the metrics already have"):
        replayed(tmp_path, Clashing())


@pytest.mark.parametrize(("hook", "round", "left"), [("on_start", 0, 0), ("on_round", 2, 2), ("on_evaluation", 3, 3)])
def test_an_exception_of_a_callback_ends_the_run_with_the_model_of_its_round(
    tmp_path: Path, hook: str, round: int, left: int
) -> None:
    diary, faulty = Diary(), {"name": "tests.callbacks.scene:Faulty", "hook": hook, "round": round}
    with pytest.raises(RayflError) as caught:
        run(tmp_path, phases=[PLAIN], callbacks=[diary], named=[faulty])
    assert diary.entries()[-1] == ("end", "failed")
    first, *traceback = str(caught.value).splitlines()
    assert first == f"callback 'tests.callbacks.scene:Faulty': {hook} raised KeyError: 'no such column'"
    assert "in _raise" in "\n".join(traceback)
    assert "follower.py" not in "\n".join(traceback)
    (folder,) = tmp_path.iterdir()
    status = json.loads((folder / "status.json").read_text())
    assert (status["status"], status["reason"], status["committed_rounds"]) == ("failed", first, left)


def test_an_exception_of_on_end_is_a_warning_and_the_other_callbacks_are_called(tmp_path: Path) -> None:
    diary = Diary()
    result = run(tmp_path, callbacks=[Faulty(hook="on_end"), diary], phases=[PLAIN | {"rounds": 1}])
    assert diary.entries()[-1] == ("end", "finished")
    assert json.loads((result.directory / "status.json").read_text())["status"] == "finished"


def test_callbacks_and_their_options_are_written_out_and_run_again(tmp_path: Path) -> None:
    from rich.console import Console

    import rayfl

    first = run(tmp_path, named=["early_stopping", {"name": "tests.callbacks.scene:StopAt", "round": 2}])
    assert first.scenario.callbacks[0].options["patience"] == 5
    again = rayfl.run(
        first.directory / "scenario.toml", backend="inline", out=tmp_path / "again", console=Console(quiet=True)
    )
    assert again.scenario == first.scenario
    assert again.metrics["round"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ("early_stoping", "callbacks.0: unknown callback 'early_stoping'; did you mean 'early_stopping'"),
        ({"name": "early_stopping", "patience": 0}, "callbacks.0: patience: "),
        ({"name": "early_stopping", "patiense": 3}, "callbacks.0: patiense: unknown key; did you mean 'patience'"),
        (
            {"name": "early_stopping", "metric": "macro_f1"},
            "callbacks.0: mode: set 'min' or 'max', whichever is best",
        ),
        ({"name": "early_stopping", "phase": "plane"}, "callbacks.0: phase: no phase is called 'plane'; did you mean"),
        ({"name": "periodic_model", "keep": 0}, "callbacks.0: keep: "),
        ("tests.algorithms.scene:TanhNet", "callbacks.0: callback 'tests.algorithms.scene:TanhNet' does not derive"),
        ("live_table", "callbacks.0: live_table needs a notebook, but this program does not run in one"),
        ("ray_tune", "callbacks.0: ray_tune reports to a trial of Ray Tune, but this program is not one"),
        ({"patience": 3}, "callbacks.0.name: "),
        (7, "callbacks.0: "),
    ],
)
def test_bad_input_is_named_before_anything_starts(tmp_path: Path, named: Any, complaint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        run(tmp_path, named=[named])
    assert complaint in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [lambda run: None, "early_stopping", Faulty])
def test_a_programs_callbacks_must_be_callbacks(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ScenarioError, match=r"^callbacks\[0\]"):
        run(tmp_path, callbacks=[given])


@cache
def reporting_much() -> RunPlan:
    evaluation = {"over_clients": ["mean"], "personalize": {"steps": 1, "lr": 0.1}}
    scenario = Scenario.from_tables(tables(evaluation=evaluation, phases=[PLAIN | {"report": ["step"]}]))
    return prepare(scenario, Path("no-data-here"))[0]


@pytest.mark.parametrize(
    ("metric", "meant"),
    [
        ("test_acuracy", "test_accuracy"),
        ("test_los", "test_loss"),
        ("test_accuracy_means", "test_accuracy_mean"),
        ("personalised_accuracy", "personalized_accuracy"),
        ("trainloss", "train_loss"),
        ("step_norms", "step_norm"),
    ],
)
def test_a_metric_that_no_round_has_is_named(metric: str, meant: str) -> None:
    job = reporting_much()
    with pytest.raises(ScenarioError) as caught:
        check_ranking_metrics([BestModel(metric=metric, mode="max")], job.scenario, job.result.store, "callbacks.{}")
    assert f"callbacks.0.metric: no metric is called '{metric}'; did you mean '{meant}'" in str(caught.value)
    assert "\n" not in str(caught.value)
    check_ranking_metrics([BestModel(metric=meant, mode="max")], job.scenario, job.result.store, "callbacks.{}")


@pytest.mark.parametrize("name", ["early_stopping", "best_model"])
def test_a_metric_that_no_round_has_is_named_before_anything_starts(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScenarioError, match=r"^callbacks\.0\.metric: no metric is called 'trainloss'"):
        run(tmp_path, named=[{"name": name, "metric": "trainloss", "mode": "min"}])
    assert list(tmp_path.iterdir()) == []


def test_a_metric_that_a_phase_does_not_report_is_named_before_anything_starts(tmp_path: Path) -> None:
    stopping = EarlyStopping(metric="test_macro_f1", mode="max", phase="plain")
    with pytest.raises(ScenarioError, match=r"^callbacks\[0\]\.metric: no metric is called 'test_macro_f1'; "):
        run(tmp_path, callbacks=[stopping], phases=[RELAY | {"metrics": ["macro_f1"]}, PLAIN])
    assert list(tmp_path.iterdir()) == []


def test_a_metric_that_a_callback_of_ones_own_may_log_is_looked_for_in_the_first_evaluation(tmp_path: Path) -> None:
    own, chosen = f"{__name__}:Logging", {"name": "best_model", "mode": "max"}
    run(tmp_path, named=[own, chosen | {"metric": "twice_the_round"}], phases=[PLAIN | {"rounds": 1}])
    named: dict[str, Any] = {"name": "best_model", "mode": "max"}
    replayed(tmp_path, Logging(), BestModel(metric="twice_the_round", **named))
    complaint = "callback 'best_model': metric: no metric is called 'twice_a_round'; did you mean 'twice_the_round'"
    with pytest.raises(ScenarioError, match=complaint):
        replayed(tmp_path, Logging(), BestModel(metric="twice_a_round", **named))


def test_a_package_that_is_missing_is_named_with_the_extra_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ScenarioError, match=r"callbacks.0: wandb not installed: pip install 'rayfl\[wandb\]'"):
        run(tmp_path, named=["wandb"])
