"""What a task's evaluation reads: views of test samples that are always the same, features, or the plain samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.config import Scenario
from rayfl.engine.events import Evaluated
from rayfl.errors import ScenarioError
from rayfl.local import EvaluationBatch, TrainingBatch
from rayfl.models import Network
from rayfl.runs.preparation import prepare
from rayfl.tasks import Classification, Reduction
from tests.engine.scenes import defined, prepared, run_on_hosts, without_clock

HERE = __name__
VIEWS = [{"augment": [f"{HERE}:darker"]}, {"augment": ["flip", {"name": f"{HERE}:darker", "by": 0.5}]}]
SHOWN: list[tuple[torch.Tensor, ...]] = []
TRAINED_ON: list[torch.Tensor] = []


def darker(x: torch.Tensor, rng: np.random.Generator, by: float = 0.25) -> torch.Tensor:
    return x * by


class Small(Network):
    """A dense layer, and the head."""

    ordered_modules = ("body", "head")
    feature_layer = "head"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(28 * 28, 8), nn.Linear(8, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(torch.tanh(self.body(x.flatten(1))))
        return outputs


class Consistent(Classification):
    """Pulls the outputs for two views together; evaluated on two views of test samples."""

    default_metrics: ClassVar[tuple[Any, ...]] = ({"name": f"{HERE}:agreement", "higher_is_better": True},)
    views: ClassVar[int] = 2
    evaluation_views: ClassVar[int] = 2

    name: str = "consistent"

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        losses = (outputs[:, 0] - outputs[:, 1]).square().sum(dim=1)
        return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return self.loss(torch.stack([batch.module(x) for x in batch.views], dim=1), batch.y)

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        SHOWN.append((batch.x, *batch.views))
        return torch.stack([batch.module(x) for x in batch.views], dim=1)


class Eager(Consistent):
    """Reads more views than two."""

    evaluation_views: ClassVar[int] = 3


class Averaged(Classification):
    """Compares nothing, and is evaluated on the mean outputs for two views (test-time augmentation)."""

    evaluation_views: ClassVar[int] = 2

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        assert len(batch.views) == 2
        return torch.stack([batch.module(x) for x in batch.views]).mean(dim=0)


class Spread(Classification):
    """Is evaluated on features."""

    default_metrics: ClassVar[tuple[Any, ...]] = ({"name": f"{HERE}:width", "higher_is_better": True},)
    reads_features: ClassVar[bool] = True

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        assert torch.equal(batch.features, torch.tanh(batch.module.get_submodule("body")(batch.x.flatten(1))))
        assert torch.equal(batch.outputs, batch.module.get_submodule("head")(batch.features))
        return batch.features

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        return super().loss(outputs, targets % outputs.shape[1], reduction)


class Raising(Classification):
    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        raise KeyError("no bank")


class Watching(Classification):
    """Remembers what it trains on."""

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        TRAINED_ON.append(batch.x)
        return super().objective(batch)


def agreement(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float((outputs[:, 0].argmax(dim=1) == outputs[:, 1].argmax(dim=1)).float().mean())


def width(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float(outputs.shape[1])


def scene(task: str = "Consistent", lr: float = 0.1, **changes: Any) -> dict[str, Any]:
    phase = {"name": "only", "rounds": 2, "cohort": 3, "local": {"steps": 2, "batch_size": 8, "lr": lr}}
    return {
        "data": {"name": "handwriting", "clients": 6, "source": "generated", "views": VIEWS},
        "task": f"{HERE}:{task}",
        "model": f"{HERE}:Small",
        "phases": [phase],
        "evaluation": {"batch_size": 40},
    } | changes


def test_a_metric_of_two_views_is_the_same_on_any_number_of_hosts() -> None:
    job = prepared(**scene())
    model, events = run_on_hosts(job, 1)
    for hosts in (2, 3):
        other, told = run_on_hosts(job, hosts)
        assert np.array_equal(other, model)
        assert without_clock(told) == without_clock(events)
    scores = [event.scores for event in events if isinstance(event, Evaluated)]
    assert 0 <= defined(scores[-1]["test_agreement"]) <= 1
    assert defined(scores[-1]["test_loss"]) < defined(scores[0]["test_loss"])


def test_every_evaluation_reads_the_same_views_each_augmented_in_its_own_way() -> None:
    SHOWN.clear()
    job = prepared(**scene(lr=1e-30))
    SHOWN.clear()  # what was tried before
    _, events = run_on_hosts(job, 1)
    number = -(-len(job.result.store.test) // 40)
    assert len(SHOWN) == 2 * number
    for before, after in zip(SHOWN[:number], SHOWN[number:], strict=True):
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    flipped = 0
    for plain, first, second in SHOWN[:number]:
        assert torch.equal(first, plain * 0.25)
        same, mirrored = ((second == x * 0.5).flatten(1).all(dim=1) for x in (plain, plain.flip(3)))
        assert bool((same | mirrored).all())
        flipped += int((~same).sum())
    assert 0.3 < flipped / len(job.result.store.test) < 0.7
    scores = [event.scores for event in events if isinstance(event, Evaluated)]
    assert scores[0] == scores[1]


def test_another_seed_of_the_data_gives_other_views() -> None:
    def views(seed: int) -> list[torch.Tensor]:
        job = prepared(**scene(seed=seed, data={**scene()["data"], "seed": seed}))
        SHOWN.clear()
        run_on_hosts(job, 1)
        return [second != plain * 0.5 for plain, _, second in SHOWN]

    assert not torch.equal(views(0)[0], views(1)[0])


def test_a_task_may_be_evaluated_on_features() -> None:
    data = {"name": "handwriting", "clients": 6, "source": "generated"}
    _, events = run_on_hosts(
        prepared(
            **scene("Spread", data=data, evaluation={"metrics": [{"name": f"{HERE}:width", "higher_is_better": True}]})
        ),
        1,
    )
    assert {event.scores["test_width"] for event in events if isinstance(event, Evaluated)} == {8.0}


def test_a_task_that_compares_nothing_may_be_evaluated_on_views_of_the_same_augmentation() -> None:
    data = {"name": "handwriting", "clients": 6, "source": "generated"}
    evaluation = {"metrics": ["accuracy"], "batch_size": 40}
    dark = [{"name": f"{HERE}:darker", "by": 0.0}]
    _, events = run_on_hosts(prepared(**scene("Averaged", data={**data, "augment": dark}, evaluation=evaluation)), 1)
    _, plain = run_on_hosts(prepared(**scene("Watching", data={**data, "augment": dark}, evaluation=evaluation)), 1)
    in_the_dark, by_day = (
        [event.scores["test_loss"] for event in told if isinstance(event, Evaluated)] for told in (events, plain)
    )
    assert in_the_dark != by_day


@pytest.mark.parametrize(("augment", "scale"), [([], 1.0), ([{"name": f"{HERE}:darker", "by": 0.125}], 0.125)])
def test_views_are_for_tasks_that_compare_them_and_augment_for_the_others(augment: list[Any], scale: float) -> None:
    first, second = scene()["phases"][0] | {"rounds": 1}, scene()["phases"][0] | {"rounds": 1, "name": "supervised"}
    data = {**scene()["data"], "augment": augment}
    job = prepared(**scene("Watching", data=data, phases=[first | {"task": f"{HERE}:Consistent"}, second]))
    assert [len(workload.store.augmentations) for workload in job.workloads] == [2, 1]
    assert job.workloads[0].store.train.x is job.workloads[1].store.train.x
    TRAINED_ON.clear()
    run_on_hosts(job, 1)
    assert len(TRAINED_ON) == 6
    assert max(float(x.max()) for x in TRAINED_ON) == pytest.approx(scale, rel=0.05)


@pytest.mark.parametrize(
    ("task", "data", "complaint"),
    [
        ("Eager", {"views": VIEWS}, "data.views: there are 2, but the evaluation of task '.*Eager' reads 3; use"),
        ("Consistent", {}, "task: '.*Consistent' compares 2 augmented views of every batch, which are identical"),
        ("Consistent", {"views": VIEWS, "augment": ["flip"]}, "data.views: gives each view its own augmentations"),
        (
            "Watching",
            {"views": VIEWS},
            "data.views: there are 2, but task '.*Watching' does not use views; use data.augment",
        ),
        (
            "Averaged",
            {},
            "task: '.*Averaged' is evaluated on augmented views of test samples, which are the unchanged samples",
        ),
        ("Raising", {}, r"task '.*Raising' on two test samples raised KeyError: 'no bank'"),
    ],
)
def test_samples_that_evaluation_cannot_read_are_reported_before_the_start(
    task: str, data: dict[str, Any], complaint: str
) -> None:
    data = {"name": "handwriting", "clients": 6, "source": "generated", **data}
    with pytest.raises(ScenarioError, match=complaint):
        prepare(Scenario.from_tables({"name": "scene", **scene(task, data=data)}), Path("no-data-here"))
