"""The kernel of a wide two-layer ReLU network: how well labels transfer between sets of samples, and bounds on losses.

Kernel and kappa: CyclicFL (first version), section III.C; Du et al., "Gradient Descent Provably Optimizes
Over-parameterized Neural Networks", ICLR 2019, eq. 3.

Bounds on the loss of clients after the updates of later clients, for SGD and orthogonal gradient descent (OGD):
CyclicFL (first version), lemma 1 and corollary 1, after Bennani et al., "Generalisation Guarantees for Continual
Learning with Orthogonal Gradient Descent", 2020. Every client update is ridge regression in the space of the kernel, on
the residual of earlier updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

MOST = 20_000
"""Largest number of samples in a set: their kernel takes 3.2 GB."""
RIDGE = 1e-6
"""Added to the diagonal, as a share of its mean: parallel inputs make the kernel singular."""


class Kappa(NamedTuple):
    """How badly labels learned on P explain those of Q.

    Attributes:
        kappa: ||y_Q - y_(P to Q)||^2.
        relative: kappa / ||y_Q||^2: 0 is perfectly transferable, 1 useless, above 1 harmful.
        smallest_p: The smallest eigenvalue of the kernel of P.
        smallest_q: The smallest eigenvalue of the kernel of Q.
    """

    kappa: float
    relative: float
    smallest_p: float
    smallest_q: float


def unit_rows(x: np.ndarray) -> np.ndarray:
    """float64 [n, d]: flattened inputs with norm 1; zero inputs stay zero."""
    rows = x.reshape(len(x), -1).astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: np.ndarray = np.divide(rows, norms, out=rows, where=norms > 0)
    return unit


def arc_cosine(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """[n, m]: rho (pi - arccos rho) / (2 pi) of every pair of unit rows with scalar product rho."""
    rho = np.clip(p @ q.T, -1, 1)
    kernel: np.ndarray = rho * (np.pi - np.arccos(rho)) / (2 * np.pi)
    return kernel


def kappa(x_p: np.ndarray, y_p: np.ndarray, x_q: np.ndarray, y_q: np.ndarray, ridge: float = RIDGE) -> Kappa:
    """Compares labels of Q with their predictions from those of P.

    Args:
        x_p: [n, d] unit rows.
        y_p: [n, outputs].
        x_q: [m, d] unit rows.
        y_q: [m, outputs].
        ridge: Added to the diagonal of the kernel of P, as a share of its mean.
    """
    h_p = arc_cosine(x_p, x_p)
    smallest_p, smallest_q = (
        float(eigh(kernel, eigvals_only=True, subset_by_index=[0, 0])[0]) for kernel in (h_p, arc_cosine(x_q, x_q))
    )
    h_p[np.diag_indices_from(h_p)] += ridge * np.trace(h_p) / len(h_p)
    explained = arc_cosine(x_q, x_p) @ cho_solve(cho_factor(h_p, lower=True, overwrite_a=True), y_p)
    value = float(np.sum((y_q - explained) ** 2))
    return Kappa(value, value / float(np.sum(y_q**2)), smallest_p, smallest_q)


class KernelSamples(NamedTuple):
    """A client's samples: unit rows x [n, d] and targets y [n, outputs]."""

    x: np.ndarray
    y: np.ndarray


class UpdateBound(NamedTuple):
    """The terms of the bound on the loss of a client after all updates, summed over outputs.

    r is the residual of y when its update begins, K its kernel, S = K + ridge I.

    Attributes:
        smallest: The smallest eigenvalue of K.
        residual: ||r||^2.
        fit: ridge^2 / n r' S^-1 r, as printed.
        error: ||ridge S^-1 r||^2 / n, the remaining loss of ridge regression; `fit` is below it for a small ridge.
        forgetting_printed: Mean over the client's samples of the sum over later updates k of r_k' S_k^-1 K_k(X_k,
            X) S_k^-1 r_k, with dimensions that match only for clients of one size; NaN otherwise.
        forgetting: The same with the missing factor K_k(X, X_k): ||K_k(X, X_k) S_k^-1 r_k||^2, the change of the
            predictions by later updates. Zero for OGD.
        complexity_7: ridge sqrt(tr K) / n ridge^2 / n r' S^-1 r, the part of this update in R_T as in equation 7.
        complexity_10: sqrt(tr K) / n r' S^-1 r, as in equation 10.
        complexity: sqrt(tr K r' S^-1 r) / n, the Rademacher complexity of functions with the norm of the solution.
        printed: fit + R_T (equation 7) + C. The printed cases have forgetting only for the last update, where it is 0.
        corrected: error + forgetting + R_T (`complexity`) + C.
    """

    smallest: float
    residual: float
    fit: float
    error: float
    forgetting_printed: float
    forgetting: float
    complexity_7: float
    complexity_10: float
    complexity: float
    printed: float
    corrected: float


def update_bounds(
    clients: Sequence[KernelSamples], ridge: float, orthogonal: bool, delta: float = 0.05, largest_loss: float = 1.0
) -> list[UpdateBound]:
    """Bounds for every client after the last update.

    Args:
        clients: Samples of the clients, in the order of their updates.
        ridge: Weight of the ridge, lambda.
        orthogonal: Whether steps are orthogonal to the features of all earlier samples (OGD), else SGD.
        delta: The bounds hold with probability 1 - delta.
        largest_loss: c of C = 3 c sqrt(log(2 / delta) / (2 n of the last client)).
    """
    sizes = [len(client.x) for client in clients]
    ends = np.cumsum(sizes)
    x = np.concatenate([client.x for client in clients])
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    kernel, residuals = arc_cosine(x, x), np.concatenate([client.y for client in clients])
    statistics, forgetting, printed = [], np.zeros(len(clients)), np.zeros(len(clients))
    for number, (part, n) in enumerate(zip(parts, sizes, strict=True)):
        own, residual = kernel[part, part], residuals[part]
        solved = cho_solve(cho_factor(own + ridge * np.eye(n)), residual)
        smallest = float(eigh(own, eigvals_only=True, subset_by_index=[0, 0])[0])
        for earlier, (before, size) in enumerate(zip(parts[:number], sizes[:number], strict=True)):
            across = kernel[part, before]
            forgetting[earlier] += np.sum((across.T @ solved) ** 2) / size
            printed[earlier] += np.sum(solved * (across @ solved)) / size if size == n else np.nan
        norm, trace = float(np.sum(residual * solved)), max(float(np.trace(own)), 0.0)
        statistics.append((smallest, float(np.sum(residual**2)), norm, float(np.sum((ridge * solved) ** 2)) / n, trace))
        residuals = residuals - kernel[:, part] @ solved
        if orthogonal:
            kernel = _projected(kernel, part)
    confidence = 3 * largest_loss * float(np.sqrt(np.log(2 / delta) / (2 * sizes[-1])))
    complexities = [
        (ridge**3 * trace**0.5 * norm / n**2, trace**0.5 * norm / n, (trace * norm) ** 0.5 / n)
        for (_, _, norm, _, trace), n in zip(statistics, sizes, strict=True)
    ]
    as_printed, _, corrected = np.sum(complexities, axis=0)
    return [
        UpdateBound(
            smallest, residual, fit := ridge**2 / n * norm, error, float(h_printed), float(h), *complexity,
            fit + float(as_printed) + confidence, error + float(h) + float(corrected) + confidence,
        )
        for (smallest, residual, norm, error, _), n, h_printed, h, complexity in zip(
            statistics, sizes, printed, forgetting, complexities, strict=True
        )
    ]  # fmt: skip


def _projected(kernel: np.ndarray, part: slice) -> np.ndarray:
    """The kernel after projecting out the features of some samples: a Schur complement."""
    own = kernel[part, part]
    damped = own + RIDGE * np.trace(kernel) / len(kernel) * np.eye(len(own))
    across = kernel[:, part]
    projected: np.ndarray = kernel - across @ cho_solve(cho_factor(damped), across.T)
    return projected
