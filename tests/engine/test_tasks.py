"""Every task from end to end, with every algorithm, on data made here: the loss falls, and hosts do not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.engine.events import Evaluated
from rayfl.errors import RayflError
from rayfl.models.network import Network
from rayfl.runs.preparation import prepare
from tests.algorithms.scene import OF_ANY_SCENE, supported
from tests.engine.scenes import defined, run_on_hosts

HERE = __name__
RNG = np.random.default_rng(9)
PLANE = RNG.normal(size=(5, 3)).astype(np.float32)


def dataset(x: np.ndarray, y: np.ndarray, classes: int | None = None) -> Dataset:
    split = len(y) * 3 // 4
    parts = Samples(x[:split], y[:split]), Samples(x[split:], y[split:])
    return Dataset("made here", *parts, classes, Provenance("arrays", "points"))


def points(rng: np.random.Generator, number: int = 240) -> np.ndarray:
    return rng.normal(size=(number, 5)).astype(np.float32)


def numbers() -> Dataset:
    x = points(np.random.default_rng(1))
    return dataset(x, (x @ PLANE)[:, 0])


def vectors() -> Dataset:
    x = points(np.random.default_rng(1))
    return dataset(x, x @ PLANE)


def tags() -> Dataset:
    x = points(np.random.default_rng(1))
    return dataset(x, (x @ PLANE > 0).astype(np.int64))


def maps() -> Dataset:
    """Images of two halves, the brighter of which is to be found; a border belongs to nobody."""
    rng = np.random.default_rng(1)
    y = np.repeat(rng.integers(0, 2, size=(120, 6, 1)), 6, axis=2)
    x = (120 + 80 * y + rng.integers(-40, 40, size=y.shape)).astype(np.uint8)
    y[:, 0] = 255
    return dataset(x[..., None], y)


def verses() -> Dataset:
    """Sequences that count up, modulo seven, from anywhere; one label is the next symbol at every place."""
    rng = np.random.default_rng(1)
    start, step = rng.integers(0, 7, size=(200, 1)), rng.integers(1, 3, size=(200, 1))
    sequences = (start + step * np.arange(9)) % 7
    return dataset(sequences[:, :-1], sequences[:, 1:])


class Dense(Network):
    ordered_modules = ("hidden", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.hidden, self.read_out = nn.Linear(5, 16), nn.Linear(16, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.read_out(torch.tanh(self.hidden(x)))
        return outputs


class Pixels(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, num_classes, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(x)
        return outputs


class Speller(nn.Module):
    """A language model whose embedding is its output layer too."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(num_classes, 12), nn.GRU(12, 12, batch_first=True)
        self.read_out = nn.Linear(12, num_classes, bias=False)
        self.read_out.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.read_out(self.rnn(self.embedding(x))[0])
        return outputs


TASKS: dict[str, dict[str, Any]] = {
    "numbers": {"data": "numbers", "model": "Dense", "task": "regression", "metrics": ["rmse", "mae", "r2"]},
    "vectors": {
        "data": "vectors", "model": "Dense", "task": {"name": "regression", "distance": "huber"}, "metrics": ["mae"],
    },
    "tags": {"data": "tags", "model": "Dense", "task": "multilabel", "metrics": ["macro_f1", "micro_f1", "auroc"]},
    "maps": {"data": "maps", "model": "Pixels", "task": "segmentation", "metrics": ["mean_iou", "accuracy"], "lr": 1.0},
    "verses": {"data": "verses", "model": "Speller", "task": "next_symbol", "metrics": ["accuracy", "perplexity"]},
}  # fmt: skip


def evaluations(name: str, hosts: int, phase: dict[str, Any], local: dict[str, Any] | None = None) -> list[Evaluated]:
    scene = TASKS[name]
    local = {"epochs": 3, "batch_size": 8, "lr": scene.get("lr", 0.2)} if local is None else local
    tables = {
        "name": name,
        "seed": 4,
        "data": {"name": f"{HERE}:{scene['data']}", "clients": 8, "partition": "iid"},
        "model": f"{HERE}:{scene['model']}",
        "task": scene["task"],
        "phases": [{"name": "the phase", "rounds": 3, "local": local} | phase],
        "evaluation": {"metrics": scene["metrics"], "batch_size": 16},
    }
    job, _ = prepare(Scenario.from_tables(tables), Path("no-data-here"))
    return [event for event in run_on_hosts(job, hosts)[1] if isinstance(event, Evaluated)]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("numbers", {"cohort": 4}),
        ("vectors", {"schedule": "relay", "cohort": 4}),
        ("tags", {"schedule": "central"}),
        ("maps", {"cohort": 4}),
        ("verses", {"schedule": "relay", "cohort": 4}),
    ],
    ids=str,
)
def test_a_task_is_learned_and_scored_alike_on_any_number_of_hosts(name: str, phase: dict[str, Any]) -> None:
    one, three = evaluations(name, 1, phase), evaluations(name, 3, phase)
    assert one == three
    first, last = one[0].scores, one[-1].scores
    assert set(last) == {f"test_{metric}" for metric in ("loss", *TASKS[name]["metrics"])}
    assert defined(last["test_loss"]) < 0.95 * defined(first["test_loss"])


@pytest.mark.parametrize("algorithm", OF_ANY_SCENE)
def test_every_algorithm_trains_what_is_no_classification(algorithm: str) -> None:
    local = supported(algorithm, {"epochs": 2, "batch_size": 8, "lr": 0.05})
    for name in ("vectors", "tags"):
        scores = evaluations(name, 1, {"cohort": 2, "rounds": 1, "algorithm": algorithm}, local)
        assert all(np.isfinite([*map(defined, event.scores.values())]).all() for event in scores)


@pytest.mark.parametrize(
    ("name", "task", "complaint"),
    [
        ("numbers", "classification", "task 'classification' needs integer class labels"),
        ("tags", "segmentation", r"task 'segmentation' needs labels \[n, height, width\]"),
        ("maps", {"name": "segmentation", "ignore": -1}, "an output of shape"),
        ("verses", "multilabel", "zeros and ones"),
        ("numbers", {"name": "regression", "distance": "cubic"}, "distance"),
    ],
)
def test_a_task_that_the_data_or_the_network_does_not_fit_is_rejected(name: str, task: Any, complaint: str) -> None:
    scene = TASKS[name]
    tables = {
        "data": {"name": f"{HERE}:{scene['data']}", "clients": 8, "partition": "iid"},
        "model": f"{HERE}:{scene['model'] if name != 'maps' else 'Dense'}",
        "task": task,
        "phases": [{"name": "federated", "rounds": 1, "cohort": 4}],
    }
    with pytest.raises(RayflError, match=complaint if name != "maps" else "Dense"):
        prepare(Scenario.from_tables(tables), Path("no-data-here"))


def rare() -> Dataset:
    """Sequences with a label that only the test set has."""
    data = verses()
    data.test.y[0, 0] = 7
    return data


def test_labels_of_sequences_are_counted_over_all_sets_as_those_of_samples_are() -> None:
    TASKS["rare"] = TASKS["verses"] | {"data": "rare"}
    scores = evaluations("rare", 1, {"cohort": 2, "rounds": 1})[-1].scores
    assert np.isfinite(defined(scores["test_loss"]))


def columns() -> Dataset:
    """Targets as a column, [n, 1]."""
    data = numbers()
    return dataset(np.concatenate([data.train.x, data.test.x]), np.concatenate([data.train.y, data.test.y])[:, None])


def halves() -> Dataset:
    x = points(np.random.default_rng(1))
    return dataset(x, ((x @ PLANE)[:, 0] > 0).astype(np.int64), 2)


def test_class_weights_train_and_shift_the_decision() -> None:
    TASKS["halves"] = {"data": "halves", "model": "Dense", "task": "classification", "metrics": ["accuracy"]}
    plain = evaluations("halves", 1, {"cohort": 4, "rounds": 2})[-1].scores
    TASKS["halves"]["task"] = {"name": "classification", "class_weights": [1.0, 30.0]}
    weighted = evaluations("halves", 2, {"cohort": 4, "rounds": 2})[-1].scores
    assert defined(weighted["test_accuracy"]) < defined(plain["test_accuracy"])


def test_a_regression_takes_targets_that_are_a_column() -> None:
    TASKS["columns"] = TASKS["numbers"] | {"data": "columns"}
    column, vector = (evaluations(name, 1, {"cohort": 4})[-1].scores for name in ("columns", "numbers"))
    assert column == pytest.approx(vector)


def test_a_batch_without_labels_does_not_end_accumulation() -> None:
    """Rows of the border alone make whole batches without a label."""
    local = {"batch_size": 1, "accumulate": 2, "lr": 0.1}
    TASKS["borders"] = TASKS["maps"] | {"data": "borders", "metrics": ["accuracy"]}
    scores = evaluations("borders", 1, {"cohort": 4, "rounds": 1}, local)[-1].scores
    assert np.isfinite(defined(scores["test_loss"]))


def borders() -> Dataset:
    data = maps()
    y = np.concatenate([data.train.y, data.test.y])
    y[: len(y) // 2] = 255
    return dataset(np.concatenate([data.train.x, data.test.x]), y)
