"""Nearest neighbours and a linear probe on features, beside a bank of training samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.events import Evaluated
from rayfl.errors import ScenarioError
from rayfl.tasks.metrics.features import KNN, LinearProbe
from rayfl.tasks.metrics.outputs import Spread
from tests.engine.scenes import defined, prepared, run_on_hosts

RNG = np.random.default_rng(4)


def state(features: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    return {"features": features.astype(np.float32), "labels": labels}


def test_neighbours_vote_with_the_exponential_of_their_cosine() -> None:
    bank, labels = RNG.normal(size=(40, 5)), RNG.integers(4, size=40)
    asked, truth = RNG.normal(size=(30, 5)), RNG.integers(4, size=30)
    right = 0
    for x, y in zip(asked, truth, strict=True):
        cosines = bank @ x / np.linalg.norm(bank, axis=1) / np.linalg.norm(x)
        votes = np.zeros(4)
        for place in np.argsort(-cosines)[:7]:
            votes[labels[place]] += np.exp(cosines[place] / 0.3)
        right += votes.argmax() == y
    metric = KNN(k=7, temperature=0.3)
    assert metric.value_beside(state(asked, truth), state(bank, labels)) == right / 30
    assert KNN(k=1).value_beside(state(bank, labels), state(bank, labels)) == 1


@pytest.mark.parametrize("scale", [1.0, 1e-3, 300.0])
def test_the_probe_is_the_minimum_of_a_penalised_cross_entropy(scale: float) -> None:
    mixed, labels = RNG.normal(size=(6, 6)), np.arange(200) % 3
    bank = np.concatenate([(RNG.normal(size=(200, 6)) + np.eye(3, 6)[labels]) @ mixed, np.ones((200, 1))], axis=1)
    asked, truth = bank[::-1] + RNG.normal(size=bank.shape) * 0.3, labels[::-1].copy()
    weights, bias = np.zeros((6, 3)), np.zeros(3)
    x = (bank[:, :6] - bank[:, :6].mean(axis=0)) / bank[:, :6].std(axis=0)
    for _ in range(20_000):  # plain gradient descent, to convergence
        logits = x @ weights + bias
        error = np.exp(logits - logits.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error = (error - np.eye(3)[labels]) / 200
        weights, bias = weights - 0.3 * (x.T @ error + 0.01 * weights), bias - 0.3 * error.sum(axis=0)
    at = (asked[:, :6] - bank[:, :6].mean(axis=0)) / bank[:, :6].std(axis=0)
    expected = ((at @ weights + bias).argmax(axis=1) == truth).mean()
    assert 0.5 < expected < 0.95
    assert LinearProbe(l2=0.01).value_beside(state(scale * asked, truth), state(scale * bank, labels)) == expected


def test_separated_classes_are_found_by_both_in_any_number_of_batches() -> None:
    labels = np.arange(60) % 3
    features = np.eye(3)[labels] * 3 + RNG.normal(size=(60, 3)) * 0.1
    for metric in (KNN(k=5), LinearProbe()):
        parts = [
            metric.state(torch.from_numpy(features[i]), torch.from_numpy(labels[i]))
            for i in np.split(np.arange(60), [7, 30])
        ]
        assert metric.value_beside(metric.merged(parts), state(features, labels)) == 1


def test_outputs_of_one_direction_have_no_spread() -> None:
    metric, targets = Spread(), torch.zeros(500)
    one = torch.arange(1, 501).unsqueeze(1) * torch.ones(1, 8)
    collapsed = defined(metric.value(metric.state(one, targets)))
    assert collapsed == pytest.approx(0, abs=1e-6)
    assert metric.remark(collapsed) == (
        "nearly all outputs have the same direction, as in a network that has collapsed or is still untrained"
    )
    assert not metric.remark(0.5)
    even = torch.randn(500, 8, generator=torch.Generator().manual_seed(1))
    assert metric.value(metric.state(even, targets)) == pytest.approx(1, abs=0.05)
    halves = metric.merged([metric.state(even[:123], targets), metric.state(even[123:], targets)])
    assert metric.value(halves) == pytest.approx(metric.value(metric.state(even, targets)))


SMALL = {"name": "mlp", "hidden": [16]}
BANK = {"every": 1, "metrics": ["accuracy", "knn", {"name": "linear_probe", "l2": 0.1}], "bank": 50, "batch_size": 20}


def evaluated(hosts: int, **evaluation: Any) -> list[dict[str, float | None]]:
    phase = {"name": "p", "rounds": 2, "cohort": 2, "local": {"epochs": 1, "batch_size": 8, "lr": 0.05}}
    _, events = run_on_hosts(prepared(model=SMALL, phases=[phase], evaluation=BANK | evaluation), hosts)
    return [dict(event.scores) for event in events if isinstance(event, Evaluated)]


def test_a_run_compares_its_test_samples_with_the_bank_on_any_number_of_hosts() -> None:
    first = evaluated(1)
    assert len(first) == 2
    for scores in first:
        assert {"test_accuracy", "test_knn", "test_linear_probe"} <= set(scores)
        assert not any(name.startswith("bank") for name in scores)
        assert 0 < defined(scores["test_knn"]) <= 1
    assert evaluated(3) == first


def test_scores_of_clients_are_beside_the_same_bank() -> None:
    phase = {"name": "p", "rounds": 1, "cohort": 2}
    data = {"name": "handwriting", "clients": 8, "test_share": 0.2}
    _, events = run_on_hosts(
        prepared(data=data, model=SMALL, phases=[phase], evaluation=BANK | {"per_client": True}), 2
    )
    last = next(event for event in events if isinstance(event, Evaluated))
    assert all("knn" in of.scores for of in last.clients if of.set == "client_test")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bank": None}, "evaluation.metrics: 'knn' compares test samples with training samples; set their number"),
        (
            {"metrics": ["accuracy"]},
            "evaluation.bank: has no effect, since no metric reads it; add 'knn' or 'linear_probe'",
        ),
        ({"personalize": {"steps": 1}}, "evaluation.metrics: 'knn' compares features of a single model with the"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(changes: dict[str, Any], message: str) -> None:
    data = {"name": "handwriting", "clients": 8, "test_share": 0.2}
    evaluation = {key: value for key, value in (BANK | changes).items() if value is not None}
    with pytest.raises(ScenarioError, match=message):
        prepared(data=data, model="lenet5", evaluation=evaluation)
