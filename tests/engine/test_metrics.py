"""Metrics of a run: the same on any number of hosts, for all clients and for each, and in every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torchmetrics
import torchmetrics.functional as tm
from rich.console import Console
from torch.nn import functional as F

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.engine.events import Evaluated
from rayfl.errors import ClientError, RayflError, ScenarioError
from rayfl.local import TrainingBatch
from rayfl.models.flat import FlatModel
from rayfl.runs.preparation import prepare
from rayfl.tasks import Metric
from rayfl.tasks.metrics.metric import State
from rayfl.tasks.supervised import Classification
from tests.engine.scenes import FEDERATED, defined, prepared, run_on_hosts, tables

HERE = __name__
METRICS = ["accuracy", "macro_f1", "top_5", "calibration_error", "auroc", f"{HERE}:confidence"]
EVALUATION: dict[str, Any] = {"every": 2, "batch_size": 16, "per_client": True, "metrics": METRICS}


SCENE: dict[str, Any] = {
    "phases": [FEDERATED | {"rounds": 2, "cohort": 2, "local": {"batch_size": 16, "lr": 0.1}}],
    "model": {"name": "mlp", "hidden": [16]},
    "evaluation": EVALUATION,
}


def confidence(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """A metric of a user's own: the mean probability of the right class."""
    return float(outputs.softmax(1).gather(1, targets[:, None]).mean())


def broken(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    raise LookupError("no such bin")


class Focal(Classification):
    """A task of a user's own."""

    name: str = "focal"
    gamma: float = 2.0

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Any = "mean") -> torch.Tensor:
        plain = F.cross_entropy(outputs, targets, reduction="none")
        losses = (1 - (-plain).exp()) ** self.gamma * plain
        return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


class Agreement(Classification):
    """A task of a user's own that compares two views of every sample, and keeps what it was shown."""

    views: ClassVar[int] = 2
    name: str = "agreement"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        x, other = batch.views
        SHOWN.append((x, other))
        distance: torch.Tensor = (batch.outputs - batch.module(other)).square().mean()
        return self.loss(batch.outputs, batch.y) + distance


SHOWN: list[tuple[torch.Tensor, torch.Tensor]] = []


def evaluations(hosts: int, **changes: Any) -> list[Evaluated]:
    _, events = run_on_hosts(prepared(**(SCENE | changes)), hosts)
    return [event for event in events if isinstance(event, Evaluated)]


def test_metrics_are_the_same_to_the_bit_on_one_and_three_hosts() -> None:
    one = evaluations(1)
    assert one == evaluations(3)
    columns = {f"test_{name}" for name in ("loss", *METRICS[:-1], "confidence")}
    assert set(one[-1].scores) == columns
    assert all(np.isfinite(defined(value)) for value in one[-1].scores.values())


@pytest.mark.filterwarnings("ignore:No positive samples:UserWarning")
def test_metrics_of_a_run_are_those_of_all_its_predictions_and_of_each_client() -> None:
    job = prepared(**SCENE)
    vector, events = run_on_hosts(job, 2)
    model = FlatModel(_network(job), torch.device("cpu"))
    model.load(torch.from_numpy(vector))
    store = job.result.store
    x, y = BatchSource(store, torch.device("cpu")).test_batch(slice(0, len(store.test)))
    with torch.no_grad():
        outputs = model.module.eval()(x)
    last = [event for event in events if isinstance(event, Evaluated)][-1]
    options: dict[str, Any] = {"task": "multiclass", "num_classes": store.num_classes}
    expected: dict[str, Any] = {
        "test_accuracy": tm.accuracy(outputs, y, **options, average="micro"),
        "test_macro_f1": tm.f1_score(outputs, y, **options, average="macro"),
        "test_top_5": tm.accuracy(outputs, y, **options, average="micro", top_k=5),
        "test_calibration_error": tm.calibration_error(outputs.softmax(1), y, **options),
        "test_auroc": np.mean([tm.auroc(outputs.softmax(1)[:, c], y == c, task="binary") for c in set(y.tolist())]),
        "test_confidence": confidence(outputs, y),
        "test_loss": F.cross_entropy(outputs.double(), y),
    }
    assert dict(last.scores) == pytest.approx({name: float(value or 0) for name, value in expected.items()}, abs=2e-6)
    assert store.test_shards is not None
    own = store.test_shards[last.clients[3].client]
    assert last.clients[3].scores["confidence"] == pytest.approx(confidence(outputs[own], y[own]), abs=1e-6)


def _network(job: Any) -> torch.nn.Module:
    from rayfl.engine.initial_model import build_network

    workload = job.result
    return build_network(job.scenario, workload.network, workload.store, workload.num_outputs)


def run(out: Path, **changes: Any) -> rayfl.Result:
    scene = tables(**(SCENE | changes))
    return rayfl.run(scene, backend="inline", out=out, data_dir=out, console=Console(quiet=True))


def test_records_hold_every_metric_and_the_scenario_can_be_run_again(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert {f"test_{name}" for name in ("loss", "macro_f1", "confidence")} <= set(result.metrics.schema.names)
    clients = pq.read_table(result.directory / "clients.parquet")
    assert {"loss", "macro_f1", "confidence"} <= set(clients.schema.names)
    environment = json.loads((result.directory / "environment.json").read_text())
    assert environment["headline"]["metric"] == "accuracy"
    quietly: dict[str, Any] = {"backend": "inline", "data_dir": tmp_path, "console": Console(quiet=True)}
    again = rayfl.run(result.directory / "scenario.toml", out=tmp_path, **quietly)
    assert again.metrics.drop_columns(["seconds"]).equals(result.metrics.drop_columns(["seconds"]))


def test_records_hold_the_scores_of_every_class_and_the_confusion_matrix_of_the_last_round(tmp_path: Path) -> None:
    result = run(tmp_path, evaluation=EVALUATION | {"metrics": ["accuracy", "recall"]})
    confusion = json.loads((result.directory / "confusion.json").read_text())
    last = result.metrics.to_pylist()[-1]
    assert (confusion["phase"], confusion["round"]) == (last["phase"], last["round"])
    counts = np.array(confusion["samples"])
    assert counts.trace() / counts.sum() == last["test_accuracy"]
    labelled = counts.sum(axis=1)
    expected = [int(counts[c, c]) / int(labelled[c]) if labelled[c] else None for c in range(len(counts))]
    assert [last[f"test_recall/{c}"] for c in range(len(counts))] == expected
    assert last["test_recall"] == pytest.approx(np.mean([score for score in expected if score is not None]))
    assert [name for name in pq.read_schema(result.directory / "clients.parquet").names if "/" in name] == []


@pytest.mark.slow
def test_any_metric_can_be_the_headline(tmp_path: Path) -> None:
    text = _shown(tmp_path, evaluation=EVALUATION | {"headline": "calibration_error", "every": 1})
    assert "best test calibration error" in text
    assert "best test loss" in _shown(tmp_path, evaluation=EVALUATION | {"headline": "loss"})


def _shown(out: Path, **changes: Any) -> str:
    with (out / "log").open("w+") as file:
        scene = tables(**({"phases": [FEDERATED]} | changes))
        rayfl.run(scene, backend="inline", out=out, data_dir=out, console=Console(file=file, width=160))
        file.seek(0)
        return file.read()


class Counted(Metric):
    """A metric of a user's own that does not say whether more is better."""

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        return {"samples": np.array(len(targets))}

    def value(self, state: State) -> float:
        return float(state["samples"])


class Total(torchmetrics.SumMetric):
    """A metric of torchmetrics that does not say whether more is better."""

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:  # type: ignore[override]
        super().update(preds)


class Uncounted(torchmetrics.Metric):
    """Counts in plain attributes."""

    hits = samples = 0

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        self.hits += int((preds.argmax(1) == target).sum())
        self.samples += len(target)

    def compute(self) -> torch.Tensor:
        return torch.tensor(self.hits / self.samples)


class Restarted(Uncounted):
    def reset(self) -> None:
        super().reset()
        self.hits = self.samples = 0


class SoFar(Counted):
    """Adds up on itself."""

    samples = 0

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        self.samples += len(targets)
        return super().state(outputs, targets)


class Prepared(Counted):
    """Keeps what no batch changes."""

    bins: torch.Tensor | None = None

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        self.bins = torch.linspace(0, 1, 5)
        return super().state(outputs, targets)


class Wrapped(torchmetrics.Metric):
    """Hands batches to another metric, whose state is not its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torchmetrics.SumMetric()

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        self.inner.update(preds)

    def compute(self) -> Any:
        return self.inner.compute()


KEPT = [("Uncounted", "samples"), ("Restarted", "samples"), ("SoFar", "samples"), ("Wrapped", "inner._update_count")]


@pytest.mark.parametrize(("kind", "name"), KEPT)
def test_a_metric_that_keeps_something_of_a_batch_outside_its_state_is_refused_by_name(kind: str, name: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        prepared(phases=[FEDERATED], evaluation={"metrics": ["accuracy", f"{HERE}:{kind}"]})
    assert str(caught.value) == (
        f"evaluation.metrics: metric '{kind}' keeps a batch's '{name}' outside its state, which alone is merged; "
        "declare it with add_state (torchmetrics), or return it from state (rayfl.tasks.Metric)"
    )


def hit_or_miss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float()


def of_all_classes(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    if len({*targets.tolist()}) < 10:
        raise ValueError("a class is missing")
    return 1.0


def of_a_class(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs[targets == 61].max(0).values[0]


def test_a_metric_that_returns_no_number_is_refused_before_the_run() -> None:
    message = r"^evaluation.metrics: metric 'hit_or_miss': it returned a Tensor of shape \[2\], not a single number"
    with pytest.raises(ScenarioError, match=message):
        prepared(phases=[FEDERATED], evaluation={"metrics": ["accuracy", f"{HERE}:hit_or_miss"]})


@pytest.mark.parametrize("name", ["of_all_classes", "of_a_class"])
def test_a_metric_may_need_more_than_the_samples_of_the_trial(name: str) -> None:
    job = prepared(phases=[FEDERATED], evaluation={"metrics": ["accuracy", f"{HERE}:{name}"]})
    assert job.headline.metric == "accuracy"


def test_a_metric_may_keep_what_no_batch_changes() -> None:
    job = prepared(phases=[FEDERATED], evaluation={"metrics": ["accuracy", f"{HERE}:Prepared"]})
    assert job.headline.metric == "accuracy"


shortest = lambda outputs, targets: 0.0  # noqa: E731


@pytest.mark.parametrize("name", ["confidence", "shortest", "Counted", "Total"])
def test_a_headline_metric_of_a_users_own_must_say_whether_higher_is_better(name: str) -> None:
    own = f"{HERE}:{name}"
    with pytest.raises(ScenarioError) as caught:
        prepared(phases=[FEDERATED], evaluation={"metrics": [own, "accuracy"]})
    assert "\n" not in str(caught.value)
    assert f"evaluation.metrics: '{name}' ranks the rounds" in str(caught.value)
    assert f'{{ name = "{own}", higher_is_better = true }}, or false' in str(caught.value)
    for higher in (True, False):
        said = {"name": own, "higher_is_better": higher}
        assert prepared(phases=[FEDERATED], evaluation={"metrics": [said]}).headline.higher_is_better == higher
    assert prepared(phases=[FEDERATED], evaluation={"metrics": ["accuracy", own]}).headline.metric == "accuracy"


def test_a_task_of_a_users_own_trains_and_is_scored_with_its_loss() -> None:
    scored = {"evaluation": {"every": 2}}
    plain, focal, other = (
        evaluations(1, task=task, **scored)[-1].scores
        for task in ("classification", f"{HERE}:Focal", {"name": f"{HERE}:Focal", "gamma": 0.0})
    )
    assert defined(focal["test_loss"]) < defined(plain["test_loss"])
    assert other["test_loss"] == pytest.approx(plain["test_loss"], rel=1e-4)


@pytest.mark.slow
def test_a_task_that_compares_views_gets_other_augmentations_of_the_same_samples() -> None:
    data = {"name": "handwriting", "clients": 8, "augment": ["flip"]}
    scene: dict[str, Any] = {"task": f"{HERE}:Agreement", "data": data}
    SHOWN.clear()
    one = evaluations(1, **scene)
    views = list(SHOWN)
    assert one == evaluations(3, **scene)
    flipped = 0
    for x, other in views:
        same = (x == other).flatten(1).all(dim=1)
        mirrored = (x == other.flip(3)).flatten(1).all(dim=1)
        assert bool((same | mirrored).all()), "samples and their order are those of the first view"
        flipped += int((~same).sum())
    assert flipped > 0.3 * sum(len(x) for x, _ in views)


def test_an_exception_of_a_users_metric_is_reported_as_its_own(tmp_path: Path) -> None:
    with pytest.raises(
        RayflError, match=r"(?s)metric 'broken' on the \d+ test samples of client 0 raised.*no such bin"
    ) as caught:
        run(tmp_path, evaluation=EVALUATION | {"metrics": ["accuracy", f"{HERE}:broken"]})
    assert not isinstance(caught.value, ClientError)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"evaluation": {"metrics": ["acuracy"]}}, "unknown metric 'acuracy'"),
        (
            {"evaluation": {"metrics": ["accuracy"], "headline": "f1"}},
            "evaluation.headline: 'f1' is not among .* accuracy, loss",
        ),
        ({"task": "clasification"}, "task: unknown task 'clasification'; did you mean 'classification'"),
        ({"task": {"name": "regression", "delta": 2.0}}, "delta has no effect without distance = 'huber'"),
        ({"task": "multilabel"}, "task 'multilabel' needs labels .* zeros and ones"),
        ({"task": f"{HERE}:confidence"}, "does not derive from rayfl.tasks.Task"),
        (
            {"evaluation": {"metrics": ["rmse"]}},
            "metric 'rmse' .*: needs a task with real-valued targets",
        ),
    ],
)
def test_wrong_tasks_and_metrics_are_named_before_anything_starts(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ScenarioError, RayflError), match=complaint):
        prepare(Scenario.from_tables(tables(**changes)), Path("no-data-here"))


def test_a_task_that_compares_views_needs_augmentations() -> None:
    scene: dict[str, Any] = {"task": f"{HERE}:Agreement", "data": {"name": "handwriting", "clients": 8}}
    with pytest.raises(ScenarioError, match=r"^task: '.*Agreement' compares 2 augmented views of every batch"):
        prepared(phases=[FEDERATED], **scene)
