"""`evaluation.over_clients`: in every record, the same on any number of hosts, and rejected where it means nothing."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.engine.events import Evaluated
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from tests.engine.scenes import FEDERATED, defined, run_on_hosts

HERE = __name__
OWN = ["mean", "variance", "lowest_10", "lowest_20", "variance_corrected"]
POOLED = ["pooled_mean", "pooled_variance"]
CLIENTS = 12


def _drawn(rng: np.random.Generator, labels: np.ndarray) -> Samples:
    centres = np.array([[0, 0], [2, 0], [0, 2]])
    return Samples((centres[labels] + rng.normal(size=(len(labels), 2))).astype(np.float32), labels)


def blobs() -> Dataset:
    """Three classes in the plane, which overlap."""
    rng = np.random.default_rng(4)
    train, test = (_drawn(rng, rng.integers(0, 3, number)) for number in (400, 90))
    return Dataset("blobs", train, test, 3, Provenance("arrays", "blobs"))


def without_class_2() -> Dataset:
    """Four clients, the last of which has class 2 alone; the test samples have none of that class."""
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(4), 6)
    labels = np.where(owner == 3, 2, rng.integers(0, 2, 24))
    natural = NaturalClients(("a", "b", "c", "d"), Shards.by_owner(owner, 4), None)
    test = _drawn(rng, rng.integers(0, 2, 20))
    return Dataset("blobs", _drawn(rng, labels), test, 3, Provenance("arrays", "blobs"), natural)


def one_untested() -> Dataset:
    """Four clients, all with test samples except the second."""
    rng = np.random.default_rng(4)
    owner, test_owner = np.repeat(np.arange(4), 6), np.repeat([0, 2, 3], 4)
    shards = Shards.by_owner(owner, 4), Shards.by_owner(test_owner, 4)
    train, test = (_drawn(rng, rng.integers(0, 3, number)) for number in (24, 12))
    return Dataset(
        "blobs", train, test, 3, Provenance("arrays", "blobs"), NaturalClients(("a", "b", "c", "d"), *shards)
    )


SPLIT: dict[str, Any] = {
    "name": f"{HERE}:blobs",
    "clients": CLIENTS,
    "partition": {"name": "dirichlet", "beta": 0.5, "min_size": 6},
    "test_share": 0.3,
    "validation_share": 0.1,
}


def tables(evaluation: dict[str, Any], data: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    phase = FEDERATED | {"cohort": 4}
    whole = {"name": "fair", "model": "tests.user_code:Linear", "phases": [phase], "evaluation": evaluation}
    return whole | {"data": SPLIT if data is None else data} | changes


def prepared(evaluation: dict[str, Any], **changes: Any) -> RunPlan:
    return prepare(Scenario.from_tables(tables(evaluation, **changes)), Path("no-data-here"))[0]


def evaluations(hosts: int, evaluation: dict[str, Any], **changes: Any) -> list[Evaluated]:
    events = run_on_hosts(prepared(evaluation, **changes), hosts)[1]
    return [event for event in events if isinstance(event, Evaluated)]


def run(out: Path, evaluation: dict[str, Any], console: Console | None = None, **changes: Any) -> rayfl.Result:
    console = console or Console(quiet=True)
    scenario = tables(evaluation, **changes)
    return rayfl.run(scenario, backend="inline", out=out, data_dir=out, console=console)


def test_bits_are_the_same_on_one_and_on_three_hosts() -> None:
    asked = {"over_clients": [*OWN, *POOLED], "batch_size": 7}
    one = evaluations(1, asked)
    assert one == evaluations(3, asked)
    plain = {f"{name}_{metric}" for name in ("test", "client_test", "validation") for metric in ("loss", "accuracy")}
    asked_for = {f"{name}_accuracy_{what}" for name in ("client_test", "validation") for what in OWN}
    asked_for |= {f"test_accuracy_{what}" for what in POOLED}
    numbers = {f"{name}_clients" for name in ("client_test_accuracy", "validation_accuracy", "test_accuracy_pooled")}
    assert set(one[-1].scores) == plain | asked_for | numbers
    assert len(one) == FEDERATED["rounds"]


def test_metrics_hold_what_follows_from_the_clients_own_scores(tmp_path: Path) -> None:
    result = run(tmp_path, {"over_clients": OWN, "metrics": ["macro_f1", "accuracy"], "headline": "accuracy"})
    rows = pq.read_table(result.directory / "clients.parquet").to_pylist()
    lines = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == FEDERATED["rounds"]
    for line in lines:
        for name in ("client_test", "validation"):
            own = [row for row in rows if row["round"] == line["round"] and row["set"] == name]
            assert len(own) == CLIENTS
            values = [row["accuracy"] for row in own]
            noise = [
                p * (1 - p) / (row["samples"] - 1) for p, row in zip(values, own, strict=True) if row["samples"] > 1
            ]
            spread, worst = statistics.pvariance(values), sorted(values)
            expected = {
                "mean": statistics.mean(values),
                "variance": spread,
                "lowest_10": statistics.mean(worst[:2]),
                "lowest_20": statistics.mean(worst[:3]),
                "variance_corrected": spread - (1 - 1 / CLIENTS) * statistics.mean(noise),
            }
            found = {what: line[f"{name}_accuracy_{what}"] for what in OWN}
            assert found == pytest.approx(expected, abs=1e-14)
    assert not [name for name in lines[0] if "macro_f1_" in name or name.startswith("test_accuracy_")]
    again = rayfl.run(
        result.directory / "scenario.toml",
        backend="inline",
        out=tmp_path,
        data_dir=tmp_path,
        console=Console(quiet=True),
    )
    assert again.metrics.drop_columns(["seconds"]).equals(result.metrics.drop_columns(["seconds"]))


def test_pooled_accuracies_are_those_of_the_test_samples_classes_weighted_by_each_clients_own() -> None:
    job = prepared({"over_clients": POOLED, "every": 3})
    vector, events = run_on_hosts(job, 2)
    (evaluated,) = [event for event in events if isinstance(event, Evaluated)]
    assert not evaluated.clients, "no client is scored on samples of its own for this"
    weight, bias = (vector[slot.offset : slot.offset + slot.size].astype(float) for slot in job.result.initial.layout)
    store = job.result.store
    right = (store.test.x @ weight.reshape(3, 2).T + bias).argmax(axis=1) == store.test.y
    of_class = [right[store.test.y == label].mean() for label in range(3)]
    accuracies = []
    for client in range(CLIENTS):
        labels = list(store.train.y[store.train_shards[client]])
        for held in store.held_out.values():
            assert held.shards is not None
            labels += list(held.samples.y[held.shards[client]])
        accuracies.append(statistics.mean(of_class[label] for label in labels))
    assert evaluated.scores["test_accuracy_pooled_mean"] == pytest.approx(statistics.mean(accuracies))
    assert evaluated.scores["test_accuracy_pooled_variance"] == pytest.approx(statistics.pvariance(accuracies))


def test_clients_without_test_samples_do_not_count() -> None:
    *_, last = evaluations(1, {"over_clients": ["mean", "variance"]}, data={"name": f"{HERE}:one_untested"})
    values = [defined(score.scores["accuracy"]) for score in last.clients]
    assert [score.client for score in last.clients] == [0, 2, 3]
    assert last.scores["test_accuracy_mean"] == pytest.approx(statistics.mean(values))
    assert last.scores["test_accuracy_variance"] == pytest.approx(statistics.pvariance(values))


def test_tiny_clients_of_a_dirichlet_split_have_a_test_sample_each_and_count() -> None:
    data = SPLIT | {"clients": 40, "partition": {"name": "dirichlet", "beta": 0.5, "min_size": 2}}
    *_, last = evaluations(1, {"over_clients": OWN}, data={k: v for k, v in data.items() if k != "validation_share"})
    own = {score.client: score for score in last.clients}
    assert len(own) == 40
    assert min(score.samples for score in own.values()) == 1
    values = [defined(score.scores["accuracy"]) for score in own.values()]
    noise = [p * (1 - p) / (own[k].samples - 1) for k, p in enumerate(values) if own[k].samples > 1]
    expected = statistics.pvariance(values) - (1 - 1 / 40) * statistics.mean(noise)
    assert last.scores["client_test_accuracy_variance_corrected"] == pytest.approx(expected)


def test_drawn_clients_and_personal_models_count_with_the_scores_that_they_have() -> None:
    phase = FEDERATED | {"cohort": 4, "algorithm": "ditto"}
    for evaluation in ({"clients": 5}, {"client_model": "personal"}):
        *_, last = evaluations(2, {"over_clients": ["variance"], **evaluation}, phases=[phase])
        values = [defined(score.scores["accuracy"]) for score in last.clients if score.set == "client_test"]
        assert len(values) == evaluation.get("clients", CLIENTS)
        assert last.scores["client_test_accuracy_variance"] == pytest.approx(statistics.pvariance(values))


def test_personalized_accuracy_has_statistics_too() -> None:
    *_, last = evaluations(1, {"over_clients": ["mean", "variance"], "personalize": {"lr": 0.1}})
    values = [defined(score.scores["personalized_accuracy"]) for score in last.clients if score.set == "client_test"]
    assert len(values) == CLIENTS
    assert last.scores["personalized_accuracy_mean"] == last.scores["personalized_accuracy"]
    assert last.scores["personalized_accuracy_variance"] == pytest.approx(statistics.pvariance(values))


def test_the_worst_losses_are_the_highest() -> None:
    *_, last = evaluations(1, {"over_clients": ["lowest_10"], "headline": "loss"})
    losses = sorted(defined(score.scores["loss"]) for score in last.clients if score.set == "client_test")
    assert last.scores["client_test_loss_lowest_10"] == pytest.approx(sum(losses[-2:]) / 2)


def test_a_run_stops_once_the_spread_no_longer_falls(tmp_path: Path) -> None:
    column = "client_test_accuracy_variance"
    phases = [FEDERATED | {"cohort": 4, "rounds": 40}]
    stopping = {"name": "early_stopping", "metric": column, "mode": "min", "patience": 2}
    evaluation = {"over_clients": ["variance"]}
    result = run(tmp_path, evaluation, phases=phases, callbacks=[stopping])
    values = result.metrics[column].to_pylist()
    assert len(values) < 40
    assert min(values[-2:]) >= min(values[:-2])
    status = json.loads((result.directory / "status.json").read_text())
    assert status["stopped"]["reason"].startswith(f"{column} has not improved in 2 evaluations")


def test_the_table_shows_percent_and_percent_squared(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as file:
        result = run(tmp_path, {"over_clients": ["mean", "variance"]}, Console(file=file, width=160))
        file.seek(0)
        lines = [" ".join(line.split()) for line in file]
    mean, variance = (result.metrics[f"client_test_accuracy_{what}"].to_pylist()[-1] for what in ("mean", "variance"))
    assert f"client test accuracy mean {100 * mean:.2f} %" in lines
    assert f"client test accuracy variance {10_000 * variance:.2f} %²" in lines


def test_a_score_that_is_not_finite_leaves_its_statistics_empty(tmp_path: Path) -> None:
    evaluation = {"over_clients": ["mean"], "metrics": [{"name": f"{HERE}:broken", "higher_is_better": True}]}
    metrics = run(tmp_path, evaluation).metrics
    assert metrics["client_test_broken_mean"].null_count == FEDERATED["rounds"]
    assert metrics["client_test_broken_clients"].null_count == 0


def broken(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """A metric of a user's own that some clients' predictions break."""
    return math.nan if len(targets) < 5 else 1.0


def sizes(outputs: torch.Tensor, targets: torch.Tensor) -> float | None:
    """A metric of a user's own that fewer than five samples leave undefined."""
    return None if len(targets) < 5 else 1 / len(targets)


def test_clients_whose_labels_leave_the_metric_undefined_are_left_out_and_the_rest_counted(tmp_path: Path) -> None:
    own = {"name": f"{HERE}:sizes", "higher_is_better": True}
    asked = {
        "over_clients": ["mean", "variance", "lowest_20"],
        "metrics": [own],
        "personalize": {"steps": 1, "lr": 0.1},
    }
    result = run(tmp_path, asked)
    rows = pq.read_table(result.directory / "clients.parquet").to_pylist()
    last = result.metrics.to_pylist()[-1]
    for name in ("client_test", "validation"):
        numbers = [row["samples"] for row in rows if row["set"] == name and row["round"] == last["round"]]
        shares = np.array([1 / number for number in numbers if number >= 5])
        assert 0 < len(shares) < len(numbers)
        assert last[f"{name}_sizes_mean"] == pytest.approx(shares.mean())
        assert last[f"{name}_sizes_variance"] == pytest.approx(shares.var())
        assert last[f"{name}_sizes_lowest_20"] == pytest.approx(np.sort(shares)[: math.ceil(len(shares) / 5)].mean())
        assert last[f"{name}_sizes_clients"] == len(shares)
    tested = [row for row in rows if row["set"] == "client_test" and row["round"] == last["round"]]
    defined = [row["samples"] for row in tested if row["samples"] >= 5]
    assert last["personalized_sizes"] == pytest.approx(np.mean([1 / number for number in defined]))
    assert last["personalized_sizes_clients"] == len(defined)
    assert [row["sizes"] is None for row in tested] == [row["samples"] < 5 for row in tested]


def test_statistics_of_a_metric_that_is_undefined_for_everybody_are_empty(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as file:
        own = {"name": f"{HERE}:nothing", "higher_is_better": True}
        result = run(tmp_path, {"over_clients": ["mean"], "metrics": [own]}, Console(file=file, width=160))
        file.seek(0)
        lines = [" ".join(line.split()) for line in file]
    assert result.metrics["client_test_nothing_mean"].null_count == FEDERATED["rounds"]
    assert result.metrics["client_test_nothing_clients"].to_pylist() == [0] * len(result.metrics)
    assert "client test nothing mean undefined" in lines
    assert "client test nothing, number of clients 0" in lines


def nothing(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """A metric of a user's own that is never defined."""


IID = {"name": f"{HERE}:blobs", "clients": 4, "partition": "iid"}


@pytest.mark.parametrize(
    ("evaluation", "data", "complaint"),
    [
        ({"over_clients": ["mean"]}, IID, r"evaluation\.over_clients needs test samples by client: .*data\.test_share"),
        ({"over_clients": ["mean", "mean"]}, SPLIT, r"evaluation\.over_clients: lists a statistic twice"),
        (
            {"over_clients": ["variance_corrected"], "headline": "loss"},
            SPLIT,
            r"'variance_corrected' needs accuracy or top_k as the headline metric, .* headline is 'loss' of task '",
        ),
        (
            {"over_clients": ["variance_corrected"], "metrics": ["macro_f1", "accuracy"]},
            SPLIT,
            r"'variance_corrected' needs accuracy or top_k as the headline metric, .* here the headline is 'macro_f1'",
        ),
        (
            {"over_clients": ["pooled_mean"], "metrics": [{"name": "top_k", "k": 2}]},
            SPLIT,
            r"'pooled_mean' needs accuracy as the headline metric, .* here the headline is 'top_k'",
        ),
        (
            {"over_clients": ["pooled_mean"], "client_model": "personal"},
            SPLIT,
            r"over_clients: 'pooled_mean' scores the global model .* cannot be combined with client_model = 'personal'",
        ),
        (
            {"over_clients": ["pooled_variance"], "personalize": {"lr": 0.1}},
            SPLIT,
            r"over_clients: 'pooled_variance' scores the global model .* cannot be combined with personalize",
        ),
        (
            {"over_clients": ["pooled_variance"], "clients": 3},
            SPLIT,
            r"over_clients: 'pooled_variance' scores the global model for all clients and .* with clients",
        ),
        (
            {"over_clients": ["pooled_mean"]},
            {"name": f"{HERE}:without_class_2"},
            r"the 20 test samples .* no test sample has a class of client 3 \(1 such clients\)",
        ),
        (
            {"over_clients": ["variance_corrected"]},
            {"name": f"{HERE}:blobs", "clients": 80, "partition": "iid", "test_share": 0.2},
            r"'variance_corrected' needs clients with at least two test samples .*, but none has more than one",
        ),
        (
            {"over_clients": ["mean"], "metrics": ["accuracy", {"name": "top_k", "k": 2, "label": "accuracy_mean"}]},
            SPLIT,
            r"the column of 'mean' would be 'accuracy_mean', which is also a metric",
        ),
    ],
)
def test_meaningless_options_are_rejected(evaluation: dict[str, Any], data: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint) as caught:
        prepared(evaluation, data=data)
    assert "\n" not in str(caught.value)


def test_next_symbols_have_no_one_class_per_sample() -> None:
    for name in ("variance_corrected", "pooled_mean"):
        with pytest.raises(ScenarioError, match=f"'{name}' needs .* a task with one class per sample"):
            prepared({"over_clients": [name], "metrics": ["accuracy"]}, task={"name": "next_symbol"})
