"""Federated learning in a few lines of float64, with which rayfl is compared.

It shares with rayfl the data, the initial weights, and the stream that a client update draws its samples' order from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from rayfl.streams import client_stream
from tests.algorithms.scene import CLASSES, FIRST, INPUTS, SECOND, SEED, SIZES, Setting, people

Vector = torch.Tensor
Loss = Callable[[Vector, torch.Tensor, torch.Tensor], torch.Tensor]
Penalty = Callable[[Vector], Vector]
"""The gradient of what an algorithm adds to a client's loss, at the client's model."""

SHAPES = ((FIRST, INPUTS), (FIRST,), (SECOND, FIRST), (SECOND,), (CLASSES, SECOND), (CLASSES,))
MODULE_OF = np.repeat(np.repeat(np.arange(3), 2), [int(np.prod(shape)) for shape in SHAPES])
"""[parameters]: which of the three modules each belongs to, from the input."""

DATA = people()
X, Y = torch.from_numpy(np.asarray(DATA.train.x)).double(), torch.from_numpy(DATA.train.y)


def forward(w: Vector, x: torch.Tensor, loudness: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features, as they enter the last layer, and logits."""
    parts = torch.split(w, [int(np.prod(shape)) for shape in SHAPES])
    a, b, c, d, e, f = (part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True))
    features = torch.tanh(loudness * F.linear(torch.tanh(F.linear(x, a, b)), c, d))
    return features, F.linear(features, e, f)


def cross_entropy(w: Vector, x: torch.Tensor, y: torch.Tensor, loudness: float = 1.0) -> torch.Tensor:
    return F.cross_entropy(forward(w, x, loudness)[1], y)


def gradient(loss: Loss, w: Vector, x: torch.Tensor, y: torch.Tensor) -> Vector:
    w = w.detach().requires_grad_()
    (result,) = torch.autograd.grad(loss(w, x, y), w)
    return result


def linear(slope: Vector, quadratic: float = 0.0, centre: Vector | float = 0.0) -> Penalty:
    """The gradient of <slope, y> + quadratic / 2 ||y - centre||^2."""
    return lambda y: slope + quadratic * (y - centre)


class PlainUpdate:
    """A client in a round (from 1) and exchange (from 0). n: its samples; lr: this round's; K: its local steps.

    request: which training it is of those in the exchange, from 0. epochs: instead of the setting's.
    """

    def __init__(
        self, setting: Setting, client: int, round: int, exchange: int = 0, request: int = 0, epochs: int | None = None
    ) -> None:
        self.client, self._local, self._loudness = client, setting.local, setting.loudness
        self.n, self.mean_n = SIZES[client], sum(SIZES[: setting.clients]) / setting.clients
        self.lr = self._local["lr"] * self._local.get("lr_decay", 1.0) ** (round - 1)
        start = sum(SIZES[:client])
        self.x, self.y = X[start : start + self.n], Y[start : start + self.n]
        order, size = client_stream(SEED, "order", 0, round, client, exchange, request), self._local["batch_size"]
        passes = [order.permutation(self.n) for _ in range(epochs or self._local["epochs"])]
        size = self.n if size == "full" else size
        self.batches = [rows[first : first + size] for rows in passes for first in range(0, self.n, size)]
        self.K = len(self.batches)

    def sgd(
        self,
        w: Vector,
        loss: Loss | None = None,
        *,
        penalty: Penalty | None = None,
        drift: Vector | None = None,
        decay: float = 0.0,
        trains: Callable[[int], torch.Tensor] | None = None,
    ) -> Vector:
        """Local training from w.

        loss: cross-entropy in training mode, unless another is given.
        penalty: what is added to a gradient before clipping. drift: of which lr times is subtracted after a step.
        decay: added to the weight decay. trains: step from 1 to [parameters] of ones and zeros.
        """
        loss = loss or partial(cross_entropy, loudness=self._loudness)
        clip, momentum = self._local.get("clip_norm"), self._local.get("momentum", 0.0)
        decay = decay + self._local.get("weight_decay", 0.0)
        y, velocity = w.clone(), torch.zeros_like(w)
        for step, rows in enumerate(self.batches, start=1):
            mask = trains(step) if trains else torch.ones_like(w)
            g = mask * (gradient(loss, y, self.x[rows], self.y[rows]) + (penalty(y) if penalty else 0.0))
            if clip is not None:
                g = g * min(1.0, clip / (float(g.norm()) + 1e-6))
            velocity = momentum * velocity + mask * (g + decay * y)
            y = y - self.lr * mask * (velocity + (0.0 if drift is None else drift))
        return y

    def full_loss(self, w: Vector) -> float:
        """Of all samples, in evaluation mode."""
        return float(cross_entropy(w, self.x, self.y))

    def full_gradient(self, w: Vector) -> Vector:
        """Of `full_loss`."""
        return gradient(cross_entropy, w, self.x, self.y)


def rounds(setting: Setting, exchange: int = 0) -> Iterator[list[PlainUpdate]]:
    """The cohort's client updates, round by round; exchange: in which of each round clients train."""
    for number in range(setting.rounds):
        cohort = setting.cohorts[number % len(setting.cohorts)]
        yield [PlainUpdate(setting, client, number + 1, exchange) for client in cohort]


def mean(vectors: Sequence[Vector], weights: Sequence[float] | None = None) -> Vector:
    """Weighted by the weights, or plain."""
    weights = weights or [1.0] * len(vectors)
    return sum((p * v for p, v in zip(weights, vectors, strict=True)), torch.zeros(())) / sum(weights)


def sizes(cohort: Sequence[PlainUpdate]) -> list[float]:
    return [float(update.n) for update in cohort]


_FEDAVG: dict[str, Vector] = {}


def fedavg(setting: Setting, *, uniform: bool = False, server_lr: float = 1.0) -> Vector:
    """w <- w + eta_g sum_i p_i (w_i - w). Computed once for each setting: nearly every test compares with it."""
    key = f"{setting} {uniform} {server_lr}"
    if key not in _FEDAVG:
        _FEDAVG[key] = _fedavg(setting, uniform, server_lr)
    return _FEDAVG[key].clone()


def _fedavg(setting: Setting, uniform: bool, server_lr: float) -> Vector:
    w = setting.initial()
    for cohort in rounds(setting):
        change = mean([update.sgd(w) - w for update in cohort], None if uniform else sizes(cohort))
        w = w + server_lr * change
    return w


def distance(one: Vector, other: Vector, setting: Setting) -> float:
    """Between two models, in units of how far training went."""
    return float((one - other).norm() / (other - setting.initial()).norm())


def assert_equal(ours: Vector, expected: Vector, setting: Setting, tolerance: float = 1e-5) -> None:
    """Within rounding of float32: against the change that training made, not against the size of the weights."""
    assert (expected - setting.initial()).norm() > 0.05
    apart = distance(ours, expected, setting)
    assert apart < tolerance, f"{apart:.1e} of the change apart"


def assert_equal_and_unlike(ours: Vector, expected: Vector, other: Vector, setting: Setting) -> None:
    """As `assert_equal`; and the comparison could tell it from another algorithm, by a thousand tolerances."""
    assert_equal(ours, expected, setting)
    apart = distance(other, expected, setting)
    assert apart > 1e-2, f"only {apart:.1e} of the change from what it should differ from"
