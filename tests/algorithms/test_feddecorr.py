"""FedDecorr against correlations as numpy has them, and against the same loss in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rayfl.algorithms.penalty import Decorrelation
from tests.algorithms.reference import (
    Vector,
    assert_equal,
    assert_equal_and_unlike,
    fedavg,
    forward,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained

ROOMY = PLAIN.with_local(batch_size=13)
"""Batches of 3 to 13 samples, and one of a single sample, without a penalty. Two samples correlate perfectly, whatever
they are: a penalty without gradient, but for rounding."""
SETTINGS = {"plain": ROOMY, "everything": EVERYTHING.with_local(batch_size=13), "full": FULL.with_local(batch_size=13)}

Penalty = Callable[[torch.Tensor], torch.Tensor]


def standardized(z: torch.Tensor) -> torch.Tensor:
    centred = z - z.sum(dim=0) / len(z)
    variance = centred.square().sum(dim=0) / (len(z) - 1)
    return centred / torch.sqrt(variance + 1e-8)


def per_correlation(z: torch.Tensor) -> torch.Tensor:
    """The paper: 1 / d^2 ||R||_F^2."""
    r = standardized(z).T @ standardized(z) / (len(z) - 1)
    return r.square().sum() / z.shape[1] ** 2


def as_coded(z: torch.Tensor) -> torch.Tensor:
    """loss.py: off-diagonal elements of a sum over the batch, squared, averaged, divided by the batch size."""
    g, d = standardized(z).T @ standardized(z), z.shape[1]
    return g[~torch.eye(d, dtype=torch.bool)].square().sum() / (d * (d - 1)) / len(z)


PENALTIES: dict[str, Penalty] = {"correlation": per_correlation, "code": as_coded}


def feddecorr(setting: Setting, beta: float, penalty: Penalty) -> Vector:
    def objective(w: Vector, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z, logits = forward(w, x)
        return F.cross_entropy(logits, y) + (beta * penalty(z) if len(x) > 1 else 0.0)

    w = setting.initial()
    for cohort in rounds(setting):
        w = mean([update.sgd(w, objective) for update in cohort], sizes(cohort))
    return w


@pytest.mark.parametrize("scaling", PENALTIES)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_feddecorr(setting: Setting, scaling: str) -> None:
    beta = {"correlation": 0.1, "code": 0.02}[scaling]  # the code's penalty is about B times as large
    ours = trained({"name": "feddecorr", "beta": beta, "scaling": scaling}, setting)
    assert_equal_and_unlike(ours, feddecorr(setting, beta, PENALTIES[scaling]), fedavg(setting), setting)


def test_beta_is_the_authors_and_scaling_the_papers_by_default() -> None:
    assert_equal(trained("feddecorr", ROOMY), feddecorr(ROOMY, 0.1, per_correlation), ROOMY)


@pytest.mark.parametrize(("batch", "dimensions"), [(12, 4), (5, 9), (2, 3)])
def test_penalties_are_those_of_the_correlation_matrix(batch: int, dimensions: int) -> None:
    z = np.random.default_rng(0).normal(size=(batch, dimensions)) @ np.random.default_rng(1).normal(
        size=(dimensions, dimensions)
    )
    r = np.corrcoef(z, rowvar=False)
    off_diagonal = (np.sum(r**2) - dimensions) / (dimensions * (dimensions - 1))
    features = torch.from_numpy(z)
    assert float(Decorrelation().penalty(features)) == pytest.approx(np.mean(r**2), rel=1e-6)
    assert float(Decorrelation(scaling="code").penalty(features)) == pytest.approx(
        (batch - 1) ** 2 / batch * off_diagonal, rel=1e-6
    )


def test_features_that_never_change_are_correlated_with_nothing() -> None:
    z = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    z[:, 2] = 0.0
    z.requires_grad_()
    penalty = Decorrelation().penalty(z)
    torch.autograd.backward(penalty)
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()
    kept = np.corrcoef(z.detach().numpy()[:, [0, 1, 3, 4]], rowvar=False)
    assert penalty.item() == pytest.approx(np.sum(kept**2) / 25, rel=1e-5)
