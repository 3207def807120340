"""Sums in whole steps equal the clipped gradients of every shipped network; samples do not affect each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.config.privacy import SampleDP
from rayfl.privacy.samples import released_sums
from rayfl.privacy.samples.batches import Seeded, full_passes, pass_length
from rayfl.privacy.samples.per_sample import PerSampleGradients
from rayfl.privacy.samples.released_sums import FloatSums, LatticeSums, ReleasedSums
from rayfl.privacy.secure_noise import Lattice
from rayfl.streams import stream
from tests.privacy.samples.test_per_sample import TASK, batch, resident

NETWORKS: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("lenet5", (32, 32, 3), {}),
    ("mlp", (28, 28, 1), {}),
    ("cnn_femnist", (28, 28, 1), {}),
    ("resnet8", (16, 16, 3), {"norm": "group"}),
    ("char_lstm", (7,), {"hidden": 16}),
]
BOUND, NOISE = 0.5, 1.5
DP = SampleDP(noise_multiplier=NOISE, max_grad_norm=BOUND, max_loss=2.0, secure=True)


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released_sums, "discrete_gaussian", lambda size: np.zeros(size, np.int64))


def gradient(sums: ReleasedSums, model: Any, x: Any, y: torch.Tensor, at_once: int = 64) -> torch.Tensor:
    sums.clear()
    PerSampleGradients(model, TASK).add_clipped(x, y, BOUND, at_once, 1, sums)
    sums.release_gradient()
    return model.gradient.clone()  # type: ignore[no-any-return]


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize(("name", "shape", "options"), NETWORKS)
def test_without_noise_it_is_the_clipped_sum_but_for_steps(
    name: str, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    model, (x, y) = resident(name, shape, options), batch(shape)
    exact = gradient(LatticeSums(model, DP, NOISE), model, x, y)
    seeded = Seeded(stream(1, "noise"))
    rounded = gradient(FloatSums(model, DP.model_copy(update={"secure": False}), 0.0, seeded), model, x, y)
    assert rounded.norm() > 0.1
    assert float((exact - rounded).abs().max()) < (len(y) + 1) * Lattice(NOISE, BOUND).step + 1e-6
    assert torch.equal(exact, gradient(LatticeSums(model, DP, NOISE), model, x, y))


@pytest.mark.parametrize(("name", "shape", "options"), NETWORKS)
def test_other_samples_contribute_the_same_integers_whatever_one_of_them_holds(
    name: str, shape: tuple[int, ...], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guarantee depends on this: replacing a sample changes the sum only by its own contribution."""
    steps: list[torch.Tensor] = []
    found = Lattice.in_steps

    def kept(self: Lattice, values: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
        steps.append(found(self, values, norms).clone())
        return found(self, values, norms)

    monkeypatch.setattr(Lattice, "in_steps", kept)
    model, (x, y) = resident(name, shape, options), batch(shape)
    other_x, other_y = x.clone(), y.clone()
    other_x[2], other_y[2] = x[2].flip(0) if name == "char_lstm" else 30 * torch.randn(x[2].shape), (y[2] + 1) % 10
    both = []
    for inputs, labels in ((x, y), (other_x, other_y)):
        steps.clear()
        gradient(LatticeSums(model, DP, NOISE), model, inputs, labels)
        both.append(per_sample(steps, len(y)))
    one, other = both
    others = [0, 1, 3, 4]
    assert torch.equal(one[others], other[others])
    assert not torch.equal(one[2], other[2])
    assert float(one[2].square().sum()) <= Lattice(NOISE, BOUND).largest_norm ** 2


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize(
    ("name", "shape", "options", "at_once"),
    [  # convolutions, group norm and a recurrence, in passes of five; and all in one pass
        *((*network, 5) for network in NETWORKS if network[0] in ("cnn_femnist", "resnet8", "char_lstm")),
        (*NETWORKS[1], 64),
    ],
)
def test_a_drawn_sample_changes_the_sum_by_its_contribution_alone(
    name: str, shape: tuple[int, ...], options: dict[str, Any], at_once: int
) -> None:
    """Amplification by sampling depends on this: batches of other sizes must be computed in the same way."""
    model, (x, y) = resident(name, shape, options), batch(shape)
    gradients, dp = PerSampleGradients(model, TASK), DP.model_copy(update={"physical_batch_size": at_once})

    def steps(places: list[int]) -> torch.Tensor:
        sums = LatticeSums(model, dp, NOISE)
        sums.clear()
        for part, counted in full_passes(np.array(places, np.int64), pass_length(dp, 8, 40)):
            rows = torch.as_tensor(part) % len(y)
            gradients.add_clipped(x[rows], y[rows], BOUND, at_once, 1, sums, counted)
        sums.release_gradient()
        return torch.round(model.gradient.double() / Lattice(NOISE, BOUND).step)

    own = steps([0])
    for others in (1, 2, 15, 16, 17):
        rest = list(range(1, others + 1))
        assert torch.equal(steps([0, *rest]), own + steps(rest))
    assert own.norm() > 1000
    assert not steps([]).any()


def per_sample(steps: list[torch.Tensor], samples: int) -> torch.Tensor:
    """[samples, all steps], from chunks of samples of one parameter after the other."""
    columns: list[torch.Tensor] = []
    rows: list[torch.Tensor] = []
    for chunk in steps:
        rows.append(chunk)
        if sum(map(len, rows)) == samples:
            columns.append(torch.cat(rows))
            rows = []
    assert not rows
    return torch.cat(columns, dim=1)


@pytest.mark.usefixtures("without_noise")
def test_a_sample_whose_norm_is_not_finite_counts_as_zero() -> None:
    model, (x, y) = resident("mlp", (28, 28, 1), {}), batch((28, 28, 1))
    sums = LatticeSums(model, DP, NOISE)
    good = gradient(sums, model, x, y)
    spoilt = torch.cat([x, torch.full_like(x[:1], float("inf"))])
    assert torch.equal(gradient(sums, model, spoilt, torch.cat([y, y[:1]]), at_once=5), good)


@pytest.mark.usefixtures("without_noise")
def test_losses_are_bounded_and_cut_off() -> None:
    sums = LatticeSums(resident("mlp", (28, 28, 1), {}), DP, NOISE)
    step = Lattice(NOISE, DP.max_loss).step
    losses = torch.tensor([0.5, 1.9999, 7.0, float("nan"), float("inf"), -1.0, 0.0])
    sums.add_losses(losses)
    released = float(sums.release_loss())
    assert released == pytest.approx(0.5 + 1.9999 + 3 * DP.max_loss, abs=len(losses) * step + 1e-5)
    assert round(released / step) == pytest.approx(released / step, abs=1e-6)


def test_noise_has_the_scale_of_the_account() -> None:
    model = resident("mlp", (28, 28, 1), {})
    sums = LatticeSums(model, DP, NOISE)
    sums.clear()
    sums.release_gradient()
    trained = torch.cat([model.gradient[slot.offset : slot.offset + slot.size] for slot in model.training_slots])
    assert float(trained.std()) == pytest.approx(NOISE * BOUND, rel=8 / (2 * len(trained)) ** 0.5)
    losses = [float(LatticeSums(model, DP, NOISE).release_loss()) for _ in range(400)]
    assert float(np.std(losses)) == pytest.approx(NOISE * DP.max_loss, rel=6 / 800**0.5)
