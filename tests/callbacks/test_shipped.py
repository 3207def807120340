"""The callbacks that come with rayfl, each against what it left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

from rayfl.callbacks.callback import RunSoFar
from rayfl.callbacks.model_files import BestModel, PeriodicModel
from rayfl.callbacks.ranking import EarlyStopping
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Evaluated, RoundSettled
from rayfl.engine.plan.headline import Headline
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from rayfl.runs.result import Result
from tests.callbacks.scene import PLAIN, model_of, run, same, tables
from tests.replay import recorded, replayed


def after(callback: Any, values: list[float | None], metric: str = "test_loss", first: int = 1) -> int | None:
    """The number of the evaluation after which a callback stopped a run with these values, None if it did not."""
    so_far: Any = RunSoFar(None, Headline(), *[None] * 3)  # type: ignore[arg-type]
    for number, value in enumerate(values, first):
        so_far.metrics.append({"phase": "p", "round": number, metric: value})
        callback.on_evaluation(so_far)
        if so_far.stopped:
            return number
    return None


@pytest.mark.parametrize(
    ("options", "values", "stops"),
    [
        ({"patience": 2}, [3.0, 2.0, 2.0, 2.5], 4),
        ({"patience": 2}, [3.0, 4.0, 2.9, 4.0, 2.8], None),
        ({"patience": 1}, [3.0, 3.0], 2),
        ({"patience": 1, "min_delta": 0.5}, [3.0, 2.5, 2.25], 3),
        ({"patience": 2, "mode": "max"}, [3.0, 2.0, 1.0], 3),
        ({"patience": 2}, [None, None, 1.0], 2),
        ({"patience": 2}, [None, 5.0, None, 4.0], None),
        ({}, [3.0, 4.0, 4.0, 4.0, 4.0, 4.0], 6),
        ({"target": 2.0}, [3.0, 4.0, 4.0, 4.0, 4.0, 4.0, None, 2.0], 8),
        ({"target": 2.0, "mode": "max"}, [1.0, 1.5, 2.0], 3),
        ({"target": 2.0, "patience": 2}, [3.0, 2.5, 2.7, 2.6], 4),
        ({"target": 2.0, "patience": 2}, [3.0, 2.5, 2.7, 1.9], 4),
    ],
)
def test_early_stopping_counts_evaluations_without_improvement(
    options: dict[str, Any], values: list[float | None], stops: int | None
) -> None:
    assert after(EarlyStopping(metric="test_loss", **options), values) == stops


def test_an_undefined_score_neither_improves_nor_uses_patience() -> None:
    """Clients are drawn for each evaluation, and the labels of some of them define no score."""
    scenario: Any = SimpleNamespace(evaluation=SimpleNamespace(clients=2))
    so_far: Any = RunSoFar(scenario, Headline(), *[None] * 3)  # type: ignore[arg-type]
    callback = EarlyStopping(metric="test_auroc", mode="max", patience=2)
    for number, value in enumerate([None, None, None, 0.7, None, 0.6, None, None, 0.5], 1):
        so_far.metrics.append({"phase": "p", "round": number, "test_auroc": value})
        so_far.undefined = frozenset() if value is not None else frozenset({"test_auroc"})
        assert so_far.stopped is None
        callback.on_evaluation(so_far)
    assert so_far.stopped == ("", "test_auroc has not improved in 2 evaluations (best: 0.7 in round 4)")


def never(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """A metric that no labels define."""


@pytest.mark.parametrize("name", ["early_stopping", "best_model"])
def test_ranking_by_a_score_that_no_labels_define_is_an_error_at_the_first_evaluation(
    tmp_path: Path, name: str
) -> None:
    chosen = {"name": name, "metric": "test_never_mean", "mode": "max"}
    metrics = [{"name": f"{__name__}:never", "higher_is_better": True}]
    with pytest.raises(
        ScenarioError, match=f"callback '{name}': metric: 'test_never_mean' .* undefined .* metric = 'test_loss'"
    ) as caught:
        run(tmp_path, named=[chosen], evaluation={"metrics": metrics, "over_clients": ["mean"], "every": 2})
    assert "\n" not in str(caught.value)
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "status.json").read_text())["committed_rounds"] == 2


def miss_loss(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """A metric of a user's own that is called a loss."""
    return float(1 - outputs.softmax(1).gather(1, targets[:, None]).mean())


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_model_is_that_of_the_direction_that_the_scenario_states(tmp_path: Path, higher: bool) -> None:
    metrics = [{"name": f"{__name__}:miss_loss", "higher_is_better": higher}]
    scenario = Scenario.from_tables(tables(evaluation={"metrics": metrics}))
    job, _ = prepare(scenario, Path("no-data-here"))
    _, recording = recorded()
    values = [0.5, 0.4, 0.7, 0.2, 0.6, 0.3]
    events = [
        replace(event, scores={"test_miss_loss": values[event.round - 1]}) if isinstance(event, Evaluated) else event
        for event in recording
    ]
    replayed(tmp_path, BestModel(), events=events, headlines=job.headlines)
    assert round_of(tmp_path / "best.safetensors") == (3 if higher else 4)


def test_a_metric_that_is_called_a_loss_is_not_taken_for_one(tmp_path: Path) -> None:
    evaluation = {"metrics": ["accuracy", f"{__name__}:miss_loss"]}
    with pytest.raises(ScenarioError, match=r"callbacks\.0: mode: set 'min' or 'max', .* for 'test_miss_loss'"):
        run(tmp_path, named=[{"name": "best_model", "metric": "test_miss_loss"}], evaluation=evaluation)


def test_early_stopping_goes_on_from_its_state() -> None:
    values: list[float | None] = [3.0, 2.0, 2.5, 2.4, 2.3]
    first = EarlyStopping(metric="test_loss", patience=3)
    assert after(first, values[:3]) is None
    state = json.loads(json.dumps(first.state()))
    second = EarlyStopping(metric="test_loss", patience=3)
    second.load_state(state)
    assert after(second, values[3:], first=4) == 5


def test_a_best_of_another_metric_is_none() -> None:
    """Callbacks may change when a run resumes."""
    first = EarlyStopping(metric="test_loss", patience=3)
    assert after(first, [0.1, 3.0]) is None
    second = EarlyStopping(metric="test_error", mode="min", patience=1)
    second.load_state(json.loads(json.dumps(first.state())))
    assert second.state()["best"] is None


def test_early_stopping_says_what_the_best_was() -> None:
    so_far: Any = RunSoFar(None, Headline(), *[None] * 3)  # type: ignore[arg-type]
    so_far.caller = "early_stopping"
    callback = EarlyStopping(metric="test_loss", patience=1)
    for number, value in enumerate([0.25, 0.5], 1):
        so_far.metrics.append({"phase": "p", "round": number, "test_loss": value})
        callback.on_evaluation(so_far)
    reason = "test_loss has not improved in 1 evaluation (best: 0.25 in round 1)"
    assert so_far.stopped == ("early_stopping", reason)


def test_a_run_ends_in_the_first_round_whose_metric_reaches_the_target(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole").metrics
    losses = dict(zip(whole["round"].to_pylist(), whole["test_loss"].to_pylist(), strict=True))
    first = min(losses, key=lambda round: losses[round])
    assert 1 < first < len(losses)
    stopping = {"name": "early_stopping", "metric": "test_loss", "target": losses[first]}
    result = run(tmp_path / "stopped", named=[stopping])
    assert result.metrics["round"].to_pylist()[-1] == first
    status = json.loads((result.directory / "status.json").read_text())
    reached = f"test_loss has reached the target of {losses[first]:g}: {losses[first]:.6g}"
    assert status["stopped"] == {"round": first, "callback": "early_stopping", "reason": reached}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"target": 60}, r"target: test_accuracy is a share between 0 and 1 \(got 60\); for 60 %, give 0\.6"),
        ({"target": -1}, r"target: test_accuracy is a share between 0 and 1 \(got -1\)$"),
        ({"target": 0.5, "min_delta": 0.1}, "min_delta: has no effect without patience"),
    ],
)
def test_a_target_that_no_score_can_reach_is_refused_before_the_run(
    tmp_path: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=rf"^callbacks\.0[.:] ?{complaint}"):
        run(tmp_path, named=[{"name": "early_stopping", **options}])
    assert list(tmp_path.iterdir()) == []


def test_the_target_of_a_loss_is_any_number(tmp_path: Path) -> None:
    result = run(tmp_path, named=[{"name": "early_stopping", "metric": "test_loss", "target": 60}])
    assert result.metrics["round"].to_pylist() == [1]


def test_early_stopping_can_be_limited_to_one_phase(tmp_path: Path) -> None:
    stopping = EarlyStopping(metric="test_loss", patience=1, min_delta=1000.0, phase="plain")
    assert replayed(tmp_path, stopping)[-1] == RoundSettled("plain", 4)


def round_of(path: Path) -> int:
    """The round of a replayed model, which its metadata names too."""
    with safe_open(path, "np") as file:
        assert file.metadata()["round"] == str(file.get_tensor("round"))
        return int(file.metadata()["round"])


def test_the_best_model_is_that_of_the_round_with_the_best_metric(tmp_path: Path) -> None:
    events = replayed(tmp_path, BestModel(metric="test_loss"))
    losses = {event.scores["test_loss"]: event.round for event in events if isinstance(event, Evaluated)}
    assert round_of(tmp_path / "best.safetensors") == losses[min(losses)]  # type: ignore[type-var]


def test_a_model_is_kept_every_so_many_rounds_and_only_the_latest_remain(tmp_path: Path) -> None:
    replayed(tmp_path, PeriodicModel(every=2, keep=2))
    kept = sorted((tmp_path / "models").iterdir())
    assert [path.name for path in kept] == ["round_000004.safetensors", "round_000006.safetensors"]
    assert [round_of(path) for path in kept] == [4, 6]


def test_the_models_of_a_run_are_kept_as_it_ends_with_them(tmp_path: Path) -> None:
    named = ["best_model", {"name": "periodic_model", "every": 3}]
    result = run(tmp_path, named=named, phases=[PLAIN | {"rounds": 3}], evaluation={"every": 3})
    for kept in ("best.safetensors", "models/round_000003.safetensors"):
        assert same(load_file(result.directory / kept), model_of(result))


def numbers_of(result: Result) -> dict[str, list[tuple[int, float]]]:
    """From each column to its (round, value), but for the clock's."""
    rows = result.metrics.to_pylist()
    names = [name for name in result.metrics.column_names if name not in ("phase", "round", "seconds")]
    found = {name: [(row["round"], float(row[name])) for row in rows if row[name] is not None] for name in names}
    return {name: values for name, values in found.items() if values}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # within TensorBoard's own packages
def test_tensorboard_reads_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="rayfl[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(tmp_path, named=["tensorboard"], phases=[PLAIN | {"rounds": 2}])
    events = EventAccumulator(str(result.directory / "tensorboard"))
    events.Reload()
    for name, values in numbers_of(result).items():
        read = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in read] == [round for round, _ in values]
        assert [value for _, value in read] == pytest.approx([value for _, value in values], rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_the_metrics_and_the_scenario_in_a_file(tmp_path: Path) -> None:
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package, reason="rayfl[mlflow] is not installed")
    from mlflow.tracking import MlflowClient

    result = run(tmp_path, named=["mlflow"], phases=[PLAIN])
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("rayfl")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == (result.directory.name, "FINISHED")
    assert found.data.params["phases.0.local.lr"] == "0.1"
    for name, values in numbers_of(result).items():
        history = client.get_metric_history(found.info.run_id, name)
        assert sorted((metric.step, metric.value) for metric in history) == values


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_the_metrics_for_a_later_sync(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="rayfl[wandb] is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    result = run(tmp_path, named=["wandb"], phases=[PLAIN])
    wandb.teardown()  # its service writes the file, and may still be at it when a run is finished
    (file,) = (result.directory / "wandb").glob("offline-run-*/*.wandb")
    rows = []
    for data in wandb_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    for name, values in numbers_of(result).items():
        assert [row["_step"] for row in rows] == [round for round, _ in values]
        assert [row[name] for row in rows] == pytest.approx([value for _, value in values])


def wandb_records(content: bytes) -> list[bytes]:
    """The records of a .wandb file: a header of its own, then LevelDB's log format in blocks of 32 KiB."""
    records, part, at = [], b"", 7
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        part += content[at + 7 : at + 7 + length]
        if kind in (1, 4):  # whole, or the last part
            records.append(part)
            part = b""
        at += 7 + length
    return records
