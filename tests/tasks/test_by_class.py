"""Scores of single classes and the confusion matrix, against counts by numpy and scores by torchmetrics."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torchmetrics.functional as tm

from rayfl.config.section import Named
from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.metrics import BY_CLASS, metrics
from rayfl.tasks.metrics.by_class import ClassMetric
from rayfl.tasks.metrics.construction import build_metrics
from rayfl.tasks.metrics.metric import State
from rayfl.tasks.supervised import Classification, Multilabel, NextSymbol, Segmentation
from rayfl.tasks.task import Task

CLASSES = 5
GENERATOR = torch.Generator().manual_seed(7)
LOGITS = torch.randn(61, CLASSES, generator=GENERATOR)
LOGITS[:, 3] = -50  # has samples and is never predicted
LABELS = torch.tensor([0, 1, 3, 4])[torch.randint(4, (61,), generator=GENERATOR)]  # class 2 has none
MAPS = torch.randn(4, CLASSES, 3, 3, generator=GENERATOR)
PIXELS = torch.randint(CLASSES, (4, 3, 3), generator=GENERATOR)
PIXELS[:, 0] = 255
TEXT = torch.randn(6, 4, CLASSES, generator=GENERATOR)
SYMBOLS = torch.randint(CLASSES, (6, 4), generator=GENERATOR)
SYMBOLS[2:, 3] = -100
SCENES: dict[str, tuple[Task, torch.Tensor, torch.Tensor, int]] = {
    "samples": (Classification(), LOGITS, LABELS, 1),
    "pixels": (Segmentation(), MAPS, PIXELS, 1),
    "symbols": (NextSymbol(), TEXT, SYMBOLS, -1),
}
SCORES = {"recall": tm.recall, "precision": tm.precision, "f1": tm.f1_score}


def built(name: str, task: Task, classes: int = CLASSES) -> ClassMetric:
    (metric,) = build_metrics([Named.model_validate({"name": name})], task, classes).values()
    assert isinstance(metric, ClassMetric)
    return metric


def state_of(
    metric: ClassMetric, outputs: torch.Tensor, targets: torch.Tensor, cuts: list[int], orderly: bool = True
) -> State:
    """The merged state of slices, in order or the other way round."""
    pieces = [slice(first, last) for first, last in pairwise([0, *cuts, len(targets)])]
    states = [metric.state(outputs[piece], targets[piece]) for piece in pieces]
    return metric.merged(states if orderly else states[::-1])


@pytest.mark.parametrize("scene", SCENES)
def test_the_confusion_matrix_counts_labels_by_prediction(scene: str) -> None:
    task, outputs, targets, dimension = SCENES[scene]
    predicted, labels = outputs.argmax(dimension).numpy().ravel(), targets.numpy().ravel()
    expected = np.zeros((CLASSES, CLASSES), np.int64)
    for label, prediction in zip(labels, predicted, strict=True):
        if 0 <= label < CLASSES:  # others are ignored
            expected[label, prediction] += 1
    metric = built("recall", task)
    np.testing.assert_array_equal(metric.confusion(state_of(metric, outputs, targets, [1, 3])), expected)


@pytest.mark.parametrize("name", BY_CLASS)
def test_every_class_with_samples_has_its_score_and_the_value_is_their_mean(name: str) -> None:
    metric = built(name, Classification())
    state = state_of(metric, LOGITS, LABELS, [10, 40])
    parts = metric.parts(state)
    by_torchmetrics = SCORES[name](LOGITS, LABELS, task="multiclass", num_classes=CLASSES, average="none").tolist()
    assert parts["2"] is None
    assert parts["3"] == 0
    assert {of: parts[of] for of in "0134"} == pytest.approx({of: by_torchmetrics[int(of)] for of in "0134"}, abs=1e-6)
    assert metric.value(state) == pytest.approx(np.mean([by_torchmetrics[of] for of in (0, 1, 3, 4)]), abs=1e-6)


@pytest.mark.parametrize("name", BY_CLASS)
def test_slices_in_any_order_give_the_same_bits(name: str) -> None:
    metric = built(name, Classification())
    whole = metric.parts(state_of(metric, LOGITS, LABELS, []))
    for cuts in ([1], [20, 40], [*range(1, 61)]):
        for orderly in (True, False):
            assert metric.parts(state_of(metric, LOGITS, LABELS, cuts, orderly)) == whole


def test_the_state_of_few_samples_is_small_whatever_the_number_of_classes() -> None:
    metric = built("f1", Classification(), 100)
    state = metric.state(torch.randn(2, 100), torch.tensor([7, 99]))
    assert sum(values.size for values in state.values()) <= 4


def test_without_a_labelled_sample_nothing_is_defined() -> None:
    metric = built("recall", Segmentation())
    state = metric.state(MAPS[:1], torch.full((1, 3, 3), 255))
    assert metric.value(state) is None
    assert set(metric.parts(state).values()) == {None}


def test_tasks_without_classes_and_more_classes_than_columns_are_refused() -> None:
    with pytest.raises(ScenarioError, match="metric 'recall' with task 'multilabel': needs a task with one class per"):
        built("recall", Multilabel())
    with pytest.raises(
        ScenarioError,
        match=r"metrics\.0: metric 'f1' with task 'classification': reports every class in a column, at most 100, and "
        "there are 101 classes; use balanced_accuracy or macro_f1",
    ):
        built("f1", Classification(), 101)
    with pytest.raises(RayflError, match="labels run from 0 to 4, of 4 classes"):
        state_of(built("f1", Classification(), 4), LOGITS[:, :4], LABELS, [])


def test_every_registered_metric_of_outputs_states_its_direction_before_it_is_built() -> None:
    lower = {"perplexity", "calibration_error", "mse", "rmse", "mae"}
    assert {name: metrics.resolve(name).higher_is_better for name in metrics} == {
        name: name not in lower for name in metrics
    }
