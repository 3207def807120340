"""Metrics from states of slices against torchmetrics, or a formula, on all outputs at once."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.functional as tm
from torchmetrics import MeanMetric, Metric
from torchmetrics.functional.text import perplexity

from rayfl.config.section import Named
from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.classification import Classification
from rayfl.tasks.metrics.building import build_metrics
from rayfl.tasks.multilabel import Multilabel
from rayfl.tasks.next_symbol import NextSymbol
from rayfl.tasks.regression import Regression
from rayfl.tasks.segmentation import Segmentation
from rayfl.tasks.task import Task

CLASSES = 4
GENERATOR = torch.Generator().manual_seed(3)
LOGITS = torch.randn(53, CLASSES, generator=GENERATOR)
LABELS = torch.randint(CLASSES, (53,), generator=GENERATOR)
MANY = torch.randint(2, (53, CLASSES), generator=GENERATOR).float()
VALUES, TARGETS = torch.randn(53, generator=GENERATOR), torch.randn(53, generator=GENERATOR)
MAPS = torch.randn(10, CLASSES, 6, 6, generator=GENERATOR)
PIXELS = torch.randint(CLASSES, (10, 6, 6), generator=GENERATOR)
PIXELS[:, 0] = 255
TEXT = torch.randn(12, CLASSES, CLASSES, generator=GENERATOR)
SYMBOLS = torch.randint(CLASSES, (12, CLASSES), generator=GENERATOR)
SYMBOLS[3:5, 1:] = -100

MACRO: dict[str, Any] = {"task": "multiclass", "num_classes": CLASSES, "average": "macro"}
MICRO = MACRO | {"average": "micro"}
CURVE: dict[str, Any] = {"task": "multiclass", "num_classes": CLASSES}
LABEL: dict[str, Any] = {"task": "multilabel", "num_labels": CLASSES}
CHANCES, OWN = LOGITS.softmax(1), LOGITS.sigmoid()


def value_of(
    name: str, task: Task, outputs: torch.Tensor, targets: torch.Tensor, cuts: list[int], **options: Any
) -> float:
    """The value from slices that were scored one by one, given out of order and put together in order."""
    (metric,) = build_metrics([chosen(name, **options)], task, CLASSES).values()
    pieces = [slice(first, last) for first, last in pairwise([0, *cuts, len(targets)])]
    states = {piece.start: metric.state(outputs[piece], targets[piece]) for piece in reversed(pieces)}
    return metric.value(metric.merged([states[start] for start in sorted(states)]))


def chosen(name: str, **options: Any) -> Named:
    return Named.model_validate({"name": name, **options})


CLASSIFIED, TAGGED = (Classification(), LOGITS, LABELS), (Multilabel(), LOGITS, MANY.long())
REGRESSED, SEGMENTED, SPELT = (
    (Regression(), VALUES, TARGETS),
    (Segmentation(), MAPS, PIXELS),
    (NextSymbol(), TEXT, SYMBOLS),
)
CASES: dict[str, tuple[tuple[Task, torch.Tensor, torch.Tensor], Any, dict[str, Any]]] = {
    "accuracy": (CLASSIFIED, tm.accuracy(LOGITS, LABELS, **MICRO), {}),
    "top_k": (CLASSIFIED, tm.accuracy(LOGITS, LABELS, **MICRO, top_k=2), {"k": 2}),
    "macro_f1": (CLASSIFIED, tm.f1_score(LOGITS, LABELS, **MACRO), {}),
    "balanced_accuracy": (CLASSIFIED, tm.recall(LOGITS, LABELS, **MACRO), {}),
    "auroc": (CLASSIFIED, tm.auroc(CHANCES, LABELS, **CURVE), {}),
    "average_precision": (CLASSIFIED, tm.average_precision(CHANCES, LABELS, **CURVE), {}),
    "calibration_error": (CLASSIFIED, tm.calibration_error(CHANCES, LABELS, **CURVE, n_bins=10), {"bins": 10}),
    "macro_f1 of labels": (TAGGED, tm.f1_score(OWN, MANY, **LABEL, average="macro"), {}),
    "micro_f1": (TAGGED, tm.f1_score(OWN, MANY, **LABEL, average="micro"), {}),
    "auroc of labels": (TAGGED, tm.auroc(OWN, MANY.long(), **LABEL), {}),
    "mse": (REGRESSED, ((VALUES - TARGETS) ** 2).mean(), {}),
    "rmse": (REGRESSED, ((VALUES - TARGETS) ** 2).mean().sqrt(), {}),
    "mae": (REGRESSED, (VALUES - TARGETS).abs().mean(), {}),
    "r2": (REGRESSED, tm.r2_score(VALUES, TARGETS), {}),
    "mean_iou": (SEGMENTED, tm.jaccard_index(MAPS, PIXELS, **MACRO, ignore_index=255), {}),
    "accuracy of pixels": (SEGMENTED, tm.accuracy(MAPS, PIXELS, **MICRO, ignore_index=255), {}),
    "accuracy of symbols": (SPELT, tm.accuracy(TEXT.movedim(-1, 1), SYMBOLS, **MICRO, ignore_index=-100), {}),
    "perplexity": (SPELT, perplexity(TEXT, SYMBOLS, ignore_index=-100), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_slices_together_give_what_all_samples_give(case: str) -> None:
    scene, expected, options = CASES[case]
    assert value_of(case.split()[0], *scene, [2, 3, 9], **options) == pytest.approx(float(expected), abs=1e-6)


def spread(outputs: torch.Tensor, targets: torch.Tensor, power: float = 1.0) -> float:
    """A metric of a user's own."""
    return float((outputs.std(dim=1) ** power * targets).sum())


def test_a_function_gets_all_outputs_and_targets_in_order() -> None:
    found = value_of(f"{__name__}:spread", Classification(), LOGITS, LABELS, [10, 40], power=2.0)
    assert found == pytest.approx(spread(LOGITS, LABELS, 2.0), rel=1e-6)


def test_a_class_of_torchmetrics_is_given_what_it_asks_for() -> None:
    path = "torchmetrics.classification:MulticlassCohenKappa"
    expected = tm.cohen_kappa(LOGITS, LABELS, **CURVE)
    assert value_of(path, Classification(), LOGITS, LABELS, [5]) == pytest.approx(float(expected), abs=1e-6)


def test_ece_of_slices_is_the_same_to_the_bit_wherever_slices_are_scored() -> None:
    values = {value_of("calibration_error", Classification(), LOGITS, LABELS, [20, 30]) for _ in range(3)}
    assert len(values) == 1


def test_a_metric_says_its_direction_and_whether_it_is_a_share() -> None:
    names = ["accuracy", "macro_f1", "calibration_error", "auroc"]
    built = build_metrics([chosen(name) for name in names], Classification(), CLASSES)
    assert [(m.higher_is_better, m.is_share) for m in built.values()] == [
        (True, True), (True, True), (False, True), (True, True),
    ]  # fmt: skip
    errors = build_metrics([chosen("rmse"), chosen("r2")], Regression(), 1)
    assert [(m.higher_is_better, m.is_share) for m in errors.values()] == [(False, False), (True, False)]


def test_a_perfect_language_model_has_a_perplexity_of_one() -> None:
    outputs = torch.full((2, 3, CLASSES), -1e9).scatter(2, SYMBOLS[:2, :3, None], 0.0)
    assert value_of("perplexity", NextSymbol(), outputs, SYMBOLS[:2, :3], []) == pytest.approx(1.0)


class Ratio(Metric):
    """Its state is a mean, which cannot be put together exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("ratio", torch.tensor(0.0), dist_reduce_fx="mean")

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        self.ratio = preds.mean()

    def compute(self) -> torch.Tensor:
        return self.ratio


def alone(outputs: torch.Tensor) -> float:
    return 0.0


NOT_CALLABLE = 3


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        (chosen("acuracy"), "unknown metric 'acuracy'; did you mean 'accuracy'"),
        (chosen("top_k"), "metric 'top_k' with task 'classification': .*needs k"),
        (chosen("top_k", k=0), "metrics.0.k: must be greater than 0|greater than"),
        (chosen("accuracy", label="loss"), "metrics.0: the label 'loss' is taken"),
        (chosen("accuracy", label="a b"), "metrics.0.label: 'a b' must be letters"),
        (chosen("accuracy", higher_is_better="yes"), "higher_is_better: must be true or false"),
        (chosen(f"{__name__}:Ratio"), "state 'ratio' of Ratio cannot be merged exactly"),
        (chosen(f"{__name__}:alone"), r"is a function of \['outputs'\]; it must take"),
        (chosen(f"{__name__}:NOT_CALLABLE"), "is an object of type int, not a metric"),
        (chosen("torch.nn:Identity"), "neither a function .* nor a class derived from torchmetrics.Metric"),
    ],
)
def test_only_metrics_are_accepted(named: Named, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        build_metrics([named], Classification(), CLASSES)


def test_a_metric_of_classes_is_rejected_where_there_are_none() -> None:
    with pytest.raises(ScenarioError, match="metric 'macro_f1' with task 'regression': needs a task with classes"):
        build_metrics([chosen("macro_f1")], Regression(), 1)


def test_a_metric_that_returns_no_number_is_told() -> None:
    path = "torchmetrics.classification:MulticlassConfusionMatrix"
    with pytest.raises(RayflError, match=r"MulticlassConfusionMatrix returned a Tensor of shape \[4, 4\]"):
        value_of(path, Classification(), LOGITS, LABELS, [])


def test_a_metric_without_samples_is_not_a_number() -> None:
    ignored = torch.full_like(PIXELS, 255)
    assert math.isnan(value_of("accuracy", Segmentation(), MAPS, ignored, []))


def test_a_mean_of_torchmetrics_is_kept_as_sums() -> None:
    assert set(MeanMetric()._reductions) == {"mean_value", "weight"}
    assert np.isfinite(value_of("mae", Regression(), VALUES, TARGETS, [7]))


@pytest.mark.parametrize(
    "name", ["accuracy", "macro_f1", "micro_f1", "balanced_accuracy", "mean_iou", "calibration_error"]
)
def test_ignored_labels_count_in_no_metric(name: str) -> None:
    """With every labelled pixel right, whatever stands at the ignored ones."""
    task = Segmentation(ignore=255)
    right = torch.nn.functional.one_hot(PIXELS.where(PIXELS != 255, 0), CLASSES).movedim(-1, 1) * 50.0
    expected = 0.0 if name == "calibration_error" else 1.0
    assert value_of(name, task, right, PIXELS, [3]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "task", "complaint"),
    [
        ("accuracy", Regression(), "needs a task with one class per label"),
        ("accuracy", Multilabel(), "needs a task with one class per label"),
        ("top_5", Classification(), "counts the 5 most probable classes, but there are only 4"),
        ("rmse", Classification(), "needs a task with real-valued targets"),
        ("perplexity", Multilabel(), "needs task 'next_symbol'"),
    ],
)
def test_metrics_without_meaning_for_a_task_are_rejected_in_one_line(name: str, task: Task, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=f"metric '{name}' with task '{task.name}': .*{complaint}") as caught:
        build_metrics([chosen(name)], task, CLASSES)
    assert len(str(caught.value).splitlines()) == 1
