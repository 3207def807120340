"""Metrics from states of slices against torchmetrics, or a formula, on all outputs at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
import torchmetrics.functional as tm
from torchmetrics import MeanMetric, Metric
from torchmetrics.functional.text import perplexity

import rayfl.tasks
from rayfl.config.section import Named
from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.metrics.construction import build_metrics
from rayfl.tasks.metrics.metric import State
from rayfl.tasks.supervised import Classification, Multilabel, NextSymbol, Regression, Segmentation
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
) -> float | None:
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


class PerBatch(Metric):
    """The mean of the batches' means."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        self.total += preds.mean()

    def compute(self) -> Any:
        return self.total / self._update_count


def test_a_metric_of_torchmetrics_may_divide_by_its_number_of_updates() -> None:
    found = value_of(f"{__name__}:PerBatch", Regression(), VALUES, TARGETS, [10, 40])
    assert found == pytest.approx(np.mean([VALUES[:10].mean(), VALUES[10:40].mean(), VALUES[40:].mean()]))


def alone(outputs: torch.Tensor) -> float:
    return 0.0


def true_first(y_true: torch.Tensor, y_pred: torch.Tensor) -> float:
    return 0.0


def labels_first(labels: torch.Tensor, of_model: torch.Tensor) -> float:
    return 0.0


class TargetsFirst(rayfl.tasks.Metric):
    def state(self, targets: torch.Tensor, outputs: torch.Tensor) -> State:  # type: ignore[override]
        return {}

    def value(self, state: State) -> float:
        return 0.0


class UpdatedWithTargets(torchmetrics.SumMetric):
    def update(self, target: torch.Tensor, preds: torch.Tensor) -> None:  # type: ignore[override]
        super().update(preds)


NOT_CALLABLE = 3
SWAPPED = r", but rayfl calls it with \(outputs, targets\); name them in this order$"


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        (chosen("acuracy"), "unknown metric 'acuracy'; did you mean 'accuracy'"),
        (chosen("top_k"), "metric 'top_k' with task 'classification': .*needs k"),
        (chosen("accuracy", label="loss"), "metrics.0: the label 'loss' is taken"),
        (chosen("accuracy", label="a b"), "metrics.0.label: 'a b' must be letters"),
        (chosen("accuracy", higher_is_better="yes"), "higher_is_better: must be true or false"),
        (chosen(f"{__name__}:Ratio"), "state 'ratio' of Ratio cannot be merged exactly"),
        (chosen(f"{__name__}:alone"), r"is a function of \['outputs'\]; it must take"),
        (chosen(f"{__name__}:true_first"), rf"metrics.0: metric '.*:true_first' takes \(y_true, y_pred\){SWAPPED}"),
        (chosen(f"{__name__}:labels_first"), rf"takes \(labels, of_model\){SWAPPED}"),
        (chosen(f"{__name__}:TargetsFirst"), rf"TargetsFirst': state takes \(targets, outputs\){SWAPPED}"),
        (chosen(f"{__name__}:UpdatedWithTargets"), rf"Targets': update takes \(target, preds\){SWAPPED}"),
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


def recall(scores: np.ndarray, of_class: np.ndarray, chosen: np.ndarray) -> float:
    return float((chosen & of_class).sum() / of_class.sum())


def f1(scores: np.ndarray, of_class: np.ndarray, chosen: np.ndarray) -> float:
    return float(2 * (chosen & of_class).sum() / (chosen.sum() + of_class.sum()))


def iou(scores: np.ndarray, of_class: np.ndarray, chosen: np.ndarray) -> float:
    return float((chosen & of_class).sum() / (chosen | of_class).sum())


def area_under_roc(scores: np.ndarray, of_class: np.ndarray, chosen: np.ndarray) -> float:
    """The probability that a sample of the class has a higher score than another, ties counted half."""
    inside, outside = scores[of_class][:, None], scores[~of_class]
    return float(((inside > outside) + 0.5 * (inside == outside)).mean())


def area_under_precision_recall(scores: np.ndarray, of_class: np.ndarray, chosen: np.ndarray) -> float:
    """sum_n (R_n - R_(n-1)) P_n over the thresholds, from the highest."""
    area = before = 0.0
    for threshold in np.unique(scores)[::-1]:
        reached = scores >= threshold
        now = (reached & of_class).sum() / of_class.sum()
        area, before = area + (now - before) * (reached & of_class).sum() / reached.sum(), now
    return area


BY_CLASS = {
    "balanced_accuracy": recall,
    "macro_f1": f1,
    "mean_iou": iou,
    "auroc": area_under_roc,
    "average_precision": area_under_precision_recall,
}
CURVES = ("auroc", "average_precision")
PRESENT = {"all": [0, 1, 2, 3], "without one": [0, 1, 3], "two": [1, 2], "one": [2]}


@pytest.mark.parametrize("present", PRESENT)
@pytest.mark.parametrize("name", BY_CLASS)
def test_classes_count_if_the_labels_define_their_score(name: str, present: str) -> None:
    """Every class is predicted for some sample, whether or not it has samples."""
    labels = torch.tensor(PRESENT[present])[LABELS % len(PRESENT[present])]
    scores, chosen = CHANCES.double().numpy(), LOGITS.argmax(1).numpy()
    expected = []
    for c in range(CLASSES):
        of_class = labels.numpy() == c
        if of_class.any() and not (name in CURVES and of_class.all()):
            expected.append(BY_CLASS[name](scores[:, c], of_class, chosen == c))
    found = value_of(name, Classification(), LOGITS, labels, [11, 30])
    assert found == (pytest.approx(np.mean(expected), abs=1e-6) if expected else None)
    assert (found is None) == (present == "one" and name in CURVES)


@pytest.mark.parametrize("name", BY_CLASS)
def test_labels_that_no_sample_has_are_left_out(name: str) -> None:
    """Nothing has the first of four labels, and everything has the second."""
    tags = MANY.clone()
    tags[:, 0], tags[:, 1] = 0, 1
    scores = OWN.double().numpy()
    counted = range(2 if name in CURVES else 1, CLASSES)
    expected = [BY_CLASS[name](scores[:, c], tags[:, c].bool().numpy(), scores[:, c] > 0.5) for c in counted]
    found = value_of(name, Multilabel(), LOGITS, tags.long(), [20])
    assert found == pytest.approx(np.mean(expected), abs=1e-6)
    assert value_of(name, Multilabel(), LOGITS, torch.zeros_like(tags).long(), [20]) is None


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("task", [Classification(), Multilabel()], ids=str)
def test_approximate_curves_leave_out_what_exact_ones_leave_out(name: str, task: Task) -> None:
    labels = torch.tensor([0, 1, 3])[LABELS % 3]
    if task.kind == "multilabel":
        labels = torch.nn.functional.one_hot(labels, CLASSES)
    exact = value_of(name, task, LOGITS, labels, [20])
    assert value_of(name, task, LOGITS, labels, [20], thresholds=50) == pytest.approx(exact, abs=0.03)
    assert value_of(name, task, LOGITS[:1], labels[:1], [], thresholds=5) is None


def test_a_class_that_is_never_predicted_counts_with_zero() -> None:
    never = LOGITS.clone()
    never[:, 1] = -50
    recalls = [recall(never.numpy(), LABELS.numpy() == c, never.argmax(1).numpy() == c) for c in range(CLASSES)]
    assert recalls[1] == 0
    assert value_of("balanced_accuracy", Classification(), never, LABELS, []) == pytest.approx(np.mean(recalls))


def test_micro_f1_of_samples_without_any_label_is_undefined_whatever_is_predicted() -> None:
    nothing = torch.zeros_like(MANY).long()
    for outputs in (LOGITS, LOGITS.abs(), -LOGITS.abs()):
        assert value_of("micro_f1", Multilabel(), outputs, nothing, [9]) is None


OF_PIXELS = ["accuracy", "macro_f1", "micro_f1", "balanced_accuracy", "mean_iou", "calibration_error", *CURVES]


@pytest.mark.parametrize("name", OF_PIXELS)
def test_a_metric_without_labels_that_count_is_undefined(name: str) -> None:
    ignored = torch.full_like(PIXELS, 255)
    assert value_of(name, Segmentation(ignore=255), MAPS, ignored, [4]) is None


def test_text_without_symbols_has_no_perplexity() -> None:
    assert value_of("perplexity", NextSymbol(), TEXT, torch.full_like(SYMBOLS, -100), [4]) is None


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_r2_is_that_of_the_definition_whatever_the_unit_of_the_targets(scale: float, offset: float) -> None:
    targets = (scale * (TARGETS.double() + offset)).float()
    outputs = (targets + 0.3 * scale * VALUES)[:, None]
    y, errors = targets.double().numpy(), (outputs[:, 0].double() - targets.double()).numpy()
    expected = 1 - (errors**2).sum() / ((y - y.mean()) ** 2).sum()
    assert value_of("r2", Regression(), outputs, targets, [1, 20]) == pytest.approx(expected, rel=1e-9)


def test_r2_is_undefined_for_equal_targets_and_so_for_a_single_one() -> None:
    assert value_of("r2", Regression(), VALUES[:1, None], TARGETS[:1], []) is None
    assert value_of("r2", Regression(), VALUES[:, None], torch.full_like(TARGETS, 0.1), [5, 9]) is None
    both = torch.stack([TARGETS, torch.ones(53)], 1)
    expected = tm.r2_score(VALUES.double(), TARGETS.double())
    assert value_of("r2", Regression(), VALUES[:, None].repeat(1, 2), both, [7]) == pytest.approx(float(expected))


def test_directions_of_a_single_sample_have_no_spread() -> None:
    assert value_of("spread", Classification(), LOGITS[:1], LABELS[:1], []) is None


def nothing(outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """A metric of a user's own that is undefined."""


def test_a_function_of_a_users_own_may_be_undefined() -> None:
    assert value_of(f"{__name__}:nothing", Classification(), LOGITS, LABELS, [10]) is None


def test_a_mean_of_torchmetrics_is_kept_as_sums() -> None:
    assert set(MeanMetric()._reductions) == {"mean_value", "weight"}
    assert value_of("mae", Regression(), VALUES, TARGETS, [7]) == pytest.approx(float((VALUES - TARGETS).abs().mean()))


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


@pytest.mark.parametrize("name", ["auroc", "average_precision"])
def test_confident_networks_are_ranked_where_float32_would_have_ties(name: str) -> None:
    logits = torch.linspace(18, 30, 12).unsqueeze(1).repeat(1, CLASSES)
    labels = (logits > 25).long()
    assert value_of(name, Multilabel(), logits, labels, [5]) == pytest.approx(1.0, abs=1e-6)
