"""With privacy, nothing that reads clients' data without noise ends a run or chooses its model."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rayfl.callbacks.model_files import BestModel
from rayfl.callbacks.ranking import EarlyStopping, Ranked
from rayfl.callbacks.selection import check_decisions
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from rayfl.runs.result import Result
from tests.callbacks.scene import PLAIN, StopAt, run, tables
from tests.replay import recorded

SAMPLES: dict[str, Any] = PLAIN | {
    "local": {
        "epochs": 1,
        "batch_size": 4,
        "lr": 0.1,
        "dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"},
    }
}
CLIENTS: dict[str, Any] = PLAIN | {
    "algorithm": {"name": "fedavg", "weighting": "uniform"},
    "dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": 0.3, "delta": 0.01, "accountant": "rdp"},
}
PRIVATE = pytest.mark.parametrize(("phase", "level"), [(SAMPLES, "local.dp"), (CLIENTS, "phases.N.dp")])
PHASE = pytest.mark.parametrize("phase", [SAMPLES, CLIENTS], ids=["samples", "clients"])
PEOPLE = {"name": "tests.algorithms.scene:people"}
POOLED = PEOPLE | {"partition": "iid", "clients": 12}
VALIDATED = POOLED | {"validation_share": 0.2, "test_share": 0.2}


def private(out: Path, phase: dict[str, Any], callback: Any, data: dict[str, Any], **more: Any) -> Result:
    return run(
        out, phases=[phase], named=[callback], data=data, model={"name": "tests.algorithms.scene:TanhNet"}, **more
    )


def guarantee(result: Result) -> dict[str, Any]:
    (content,) = json.loads((result.directory / "privacy.json").read_text()).values()
    return content  # type: ignore[no-any-return]


REFUSED: list[tuple[dict[str, Any], bool, str]] = [
    ({}, True, "validation_accuracy"),
    ({"metric": "client_test_loss"}, True, "client_test_loss"),
    ({"metric": "train_loss"}, False, "train_loss"),
    ({"metric": "test_accuracy_pooled_mean", "mode": "max"}, False, "test_accuracy_pooled_mean"),
]


@PRIVATE
@pytest.mark.parametrize("name", ["early_stopping", "best_model"])
def test_a_decision_by_clients_data_is_rejected(tmp_path: Path, phase: dict[str, Any], level: str, name: str) -> None:
    with pytest.raises(ScenarioError) as error:
        private(tmp_path, phase, {"name": name}, VALIDATED)
    assert (
        f"callbacks.0.metric: 'validation_accuracy' is computed from clients' data without noise, and with {level}"
        in (str(error.value))
    )
    assert "use metric = 'test_accuracy'" in str(error.value)
    assert "\n" not in str(error.value)


@cache
def job_of(level: str, validated: bool) -> RunPlan:
    phase = SAMPLES if level == "local.dp" else CLIENTS
    data, evaluation = (VALIDATED, {}) if validated else (POOLED, {"over_clients": ["pooled_mean"]})
    changed = tables(phases=[phase], data=data, evaluation=evaluation, model={"name": "tests.algorithms.scene:TanhNet"})
    return prepare(Scenario.from_tables(changed), Path("no-data-here"))[0]


@pytest.mark.parametrize("level", ["local.dp", "phases.N.dp"])
@pytest.mark.parametrize("kind", [EarlyStopping, BestModel])
@pytest.mark.parametrize(("options", "validated", "column"), REFUSED, ids=[column for _, _, column in REFUSED])
def test_a_column_that_is_computed_from_clients_data_may_not_decide(
    level: str, kind: type[Ranked], options: dict[str, Any], validated: bool, column: str
) -> None:
    with pytest.raises(ScenarioError, match=f"x.metric: '{column}' is computed from clients' data without noise"):
        check_decisions(kind(**options), job_of(level, validated), "x")


@PHASE
@pytest.mark.parametrize("partition", ["natural", "shards"])
def test_test_samples_that_clients_hold_are_theirs(tmp_path: Path, phase: dict[str, Any], partition: str) -> None:
    own = PEOPLE if partition == "natural" else PEOPLE | {"partition": {"name": "shards"}, "clients": 4}
    sized = phase | {"cohort": 3, **({"dp": phase["dp"] | {"delta": 0.01}} if "dp" in phase else {})}
    with pytest.raises(ScenarioError, match=r"callbacks\[0\].metric: 'test_loss'.*has no public test set"):
        run(tmp_path, phases=[sized], data=own, callbacks=[EarlyStopping(metric="test_loss")])


@PRIVATE
def test_public_test_samples_may_decide_and_cost_nothing(tmp_path: Path, phase: dict[str, Any], level: str) -> None:
    stopping = {"name": "early_stopping", "metric": "test_loss", "patience": 1, "min_delta": 100.0}
    result = private(tmp_path, phase, stopping, VALIDATED)
    content = guarantee(result)
    assert "callback 'early_stopping' ended the run after round 2" in content["ended_early"]
    assert content["ended_early"].endswith("the decision, by 'test_loss' on public samples, costs nothing")
    check_decisions(BestModel(metric="test_accuracy"), job_of(level, validated=True), "x")


@PHASE
@pytest.mark.slow
def test_another_cause_of_a_runs_end_is_recorded_with_the_remaining_guarantee(
    tmp_path: Path, phase: dict[str, Any]
) -> None:
    shorter = guarantee(run(tmp_path, phases=[phase | {"rounds": 2}], callbacks=[StopAt(round=2)]))
    stopped = guarantee(run(tmp_path, phases=[phase], callbacks=[StopAt(round=2)]))
    assert shorter["ended_early"] is None
    assert stopped["epsilon"] == shorter["epsilon"]
    assert "round 2 (as told): epsilon is that of the completed rounds" in stopped["ended_early"]
    assert "callbacks read values without noise, and no account covers it" in stopped["ended_early"]


def test_without_privacy_any_column_may_decide() -> None:
    job, _ = recorded()
    check_decisions(EarlyStopping(metric="train_loss"), job, "x")
