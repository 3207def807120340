"""Weights of samples in a client's objective, against weighted losses in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.queries import Gradient, HessianVectorProduct, Loss
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.sample_weights import inverse_frequency, sample_weights
from rayfl.models.flat import FlatModel
from tests.algorithms.reference import (
    PlainUpdate,
    Vector,
    assert_equal_and_unlike,
    fedavg,
    forward,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import EVERYTHING, PLAIN, Setting, prepared, trained
from tests.local.bench import shared_bench


def later_more(labels: np.ndarray, power: float = 1.0) -> np.ndarray:
    """A weighting that is no function of the labels' values."""
    weights: np.ndarray = np.arange(1, len(labels) + 1) ** power
    return weights


def too_few(labels: np.ndarray) -> list[float]:
    return [1.0] * (len(labels) - 1)


def negative(labels: np.ndarray) -> np.ndarray:
    return -np.ones(len(labels))


def no_numbers(labels: np.ndarray) -> list[str]:
    return ["much"] * len(labels)


def class_weights(update: PlainUpdate) -> torch.Tensor:
    """n / (C n_c) for each of the client's samples, by a loop over its classes."""
    weights, classes = torch.zeros(update.n, dtype=torch.float64), sorted(set(update.y.tolist()))
    for label in classes:
        same = update.y == label
        weights[same] = update.n / (len(classes) * same.sum())
    return weights


def position_weights(update: PlainUpdate) -> torch.Tensor:
    weights = torch.arange(1, update.n + 1, dtype=torch.float64) ** 2
    return weights / weights.mean()


WAYS: dict[str, Any] = {
    "inverse_frequency": ("inverse_frequency", class_weights),
    "own": ({"name": f"{__name__}:later_more", "power": 2.0}, position_weights),
}


def weighted_sgd(update: PlainUpdate, w: Vector, weights: torch.Tensor, setting: Setting) -> Vector:
    optimizer = torch.optim.SGD(
        [y := w.clone().requires_grad_()],
        lr=update.lr,
        momentum=setting.local.get("momentum", 0.0),
        weight_decay=setting.local.get("weight_decay", 0.0),
    )
    for rows in update.batches:
        optimizer.zero_grad()
        losses = F.cross_entropy(forward(y, update.x[rows])[1], update.y[rows], reduction="none")
        (weights[rows] * losses).mean().backward()  # type: ignore[no-untyped-call]
        if "clip_norm" in setting.local:
            torch.nn.utils.clip_grad_norm_([y], setting.local["clip_norm"])
        optimizer.step()
    return y.detach()


@pytest.mark.parametrize(("chosen", "weights_of"), WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_clients_minimise_their_weighted_loss(setting: Setting, chosen: Any, weights_of: Any) -> None:
    w = setting.initial()
    for cohort in rounds(setting):
        w = mean([weighted_sgd(update, w, weights_of(update), setting) for update in cohort], sizes(cohort))
    assert_equal_and_unlike(trained("fedavg", setting.with_local(sample_weights=chosen)), w, fedavg(setting), setting)


def flat(model: FlatModel, params: torch.Tensor) -> Vector:
    return torch.cat([slot.view(params).flatten() for slot in model.layout if slot.is_parameter]).double()


@pytest.mark.parametrize(("chosen", "weights_of"), WAYS.values(), ids=WAYS.keys())
def test_losses_and_gradients_that_are_asked_for_are_of_the_same_objective(chosen: Any, weights_of: Any) -> None:
    bench, update = shared_bench(), PlainUpdate(PLAIN, 4, 1)

    def ask(client: ClientContext) -> ClientUpdate[list[torch.Tensor]]:
        vector = torch.ones_like(bench.model.params)
        return [
            (yield Loss(bench.initial)),
            (yield Gradient(bench.initial)),
            (yield HessianVectorProduct(bench.initial, vector=vector)),
        ]

    loss, gradient, product = bench.run(bench.client(4, {"sample_weights": chosen}), ask)

    def objective(w: Vector) -> torch.Tensor:
        losses = F.cross_entropy(forward(w, update.x)[1], update.y, reduction="none")
        weighted: torch.Tensor = (weights_of(update) * losses).mean()
        return weighted

    w = PLAIN.initial()
    expected, along = torch.autograd.functional.hvp(objective, w, torch.ones_like(w))  # type: ignore[no-untyped-call]
    slope = torch.autograd.functional.jacobian(objective, w)  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(flat(bench.model, gradient), slope, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(flat(bench.model, product), along, rtol=1e-4, atol=1e-5)


def test_a_part_of_a_clients_data_keeps_the_weights_that_it_has_among_all_of_it() -> None:
    bench = shared_bench()

    def update(client: ClientContext) -> ClientUpdate[list[float]]:
        first, _ = client.data.split(0.5, np.random.default_rng(0))
        yield LocalTraining(bench.initial, data=first)
        return [float((yield Loss(bench.initial, first))), *first.places]

    loss, *places = bench.run(bench.client(4, {"sample_weights": "inverse_frequency", "batch_size": 3}), update)
    plain = PlainUpdate(PLAIN, 4, 1)
    rows = np.array(places, dtype=np.int64)
    every = torch.from_numpy(inverse_frequency(plain.y.numpy()))
    weights = (every / every.mean())[rows]
    losses = F.cross_entropy(forward(PLAIN.initial(), plain.x[rows])[1], plain.y[rows], reduction="none")
    assert loss == pytest.approx(float((weights * losses).mean()), rel=1e-5)


def test_equal_classes_and_equal_weights_are_no_weights() -> None:
    labels = torch.tensor([3, 1, 3, 1])
    assert sample_weights(Named(name="inverse_frequency"), labels).tolist() == [1.0] * 4
    assert torch.equal(
        trained("fedavg", PLAIN.with_local(sample_weights={"name": f"{__name__}:later_more", "power": 0.0})),
        trained("fedavg", PLAIN),
    )


def refusal(chosen: Any, **changes: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        prepared("fedavg", PLAIN.with_local(sample_weights=chosen), **changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ("inverse", ": unknown weighting of samples 'inverse'; did you mean 'inverse_frequency'?"),
        ({"name": "inverse_frequency", "power": 2}, ".power: not an option of"),
        ({"name": f"{__name__}:later_more", "power": "two"}, ".power: must be a valid number (got 'two')"),
        (f"{__name__}:WAYS", ": 'tests.local.test_sample_weights:WAYS' is not a function from labels to weights"),
        (f"{__name__}:too_few", ": 'tests.local.test_sample_weights:too_few' must return a weight for each of the 4"),
        (f"{__name__}:negative", ": 'tests.local.test_sample_weights:negative' must return a weight for each of the 4"),
        (f"{__name__}:no_numbers", ": 'tests.local.test_sample_weights:no_numbers' must return a weight for each"),
    ],
    ids=str,
)
def test_only_sample_weights_are_accepted(chosen: Any, complaint: str) -> None:
    message = refusal(chosen)
    assert message.startswith(f"phases.federated.local.sample_weights{complaint}")
    assert "\n" not in message


def test_frequencies_are_those_of_classes() -> None:
    with pytest.raises(ScenarioError) as caught:
        sample_weights(Named(name="inverse_frequency"), torch.tensor([0.5, 1.0]))
    assert str(caught.value) == (
        "local.sample_weights: 'inverse_frequency' needs one class per sample, but labels are float32 of shape [2]; "
        "give your own function"
    )
