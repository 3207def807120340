"""Convergence bounds of relays and of parallel rounds, up to a common constant, and the constants that they need.

CyclicFL (second version), Corollary 1, equations 8 to 11, which takes the bounds from Li and Lyu, "Convergence Analysis
of Sequential Federated Learning on Heterogeneous Data", NeurIPS 2023 [from memory of that paper]. As printed in
CyclicFL, the convex bound of P1 lacks T under its first root and has M_c for m; the strongly convex one has
exp(-mu R / 12 L) with R for T; and K_p is printed S_p. What is here follows from balancing, over the learning rate eta,

    D^2 / (eta T) + eta sigma^2 / (S K) + eta^2 L (sigma^2 / (s K) + zeta_*^2 / s),            eta < ~ 1 / L, or
    A / (eta T) + eta L sigma^2 / (S K) + eta^2 L^2 (sigma^2 / (s K) + zeta^2 / s),      eta < ~ 1 / (L (1 + beta)),

where s = S for a relay, and s = 1 for parallel rounds, whose clients drift apart. Every term has the unit of the loss,
or of a squared gradient in the non-convex bound. Numeric factors and logarithms, which O() hides, are left out, so the
values of one kind of bound are compared with each other, not with a loss. With S < m clients per round, bounds of both
schedules gain the same term for the sampling of clients, which CyclicFL leaves out, and so does this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import linprog

Kind = Literal["strongly convex", "convex", "non-convex"]
Training = Literal["relay", "parallel"]

TERMS = ("noise of batches", "drift by noise", "drift by clients", "start")
"""The terms of every bound, in the order of the equations."""


@dataclass(frozen=True)
class Constants:
    """What the bounds depend on, apart from the schedule.

    Attributes:
        smoothness: L, the Lipschitz constant of every client's gradient.
        noise: sigma^2 = E ||grad l_i(w; batch) - grad L_i(w)||^2.
        slope: beta^2, the part of the clients' spread that grows with the gradient (see `fitted_spread`).
        spread: zeta^2, the rest of it.
        spread_at_optimum: zeta_*^2 = (1/m) sum_i ||grad L_i(w_*)||^2.
        gap: A = L(w_0) - L(w_*).
        distance: D = ||w_0 - w_*||.
        convexity: mu, the strong convexity of every client's objective; not positive if there is none.
    """

    smoothness: float
    noise: float
    slope: float
    spread: float
    spread_at_optimum: float
    gap: float
    distance: float
    convexity: float


def bound(
    kind: Kind, training: Training, of: Constants, clients: float, steps: float, rounds: np.ndarray
) -> np.ndarray:
    """The terms of a bound after T rounds whose learning rate was chosen for T.

    strongly convex, on L(w) - L(w_*), without logarithms:
        sigma^2 / (mu S K T) + L sigma^2 / (mu^2 s K T^2) + L zeta_*^2 / (mu^2 s T^2) + mu D^2 exp(-mu T / 12 L)
    convex, on L(w) - L(w_*):
        sigma D / (S K T)^(1/2) + (L sigma^2 D^4 / (s K T^2))^(1/3) + (L zeta_*^2 D^4 / (s T^2))^(1/3) + L D^2 / T
    non-convex, on the smallest ||grad L(w)||^2 of all rounds:
        (L sigma^2 A / (S K T))^(1/2) + (L^2 sigma^2 A^2 / (s K T^2))^(1/3) + (L^2 zeta^2 A^2 / (s T^2))^(1/3)
        + L (1 + beta) A / T

    Args:
        kind: What is assumed of the objectives.
        training: `relay`: s = S. `parallel`: s = 1.
        of: The constants.
        clients: S, clients per round.
        steps: K, local steps of a client.
        rounds: T, [n].

    Returns:
        float64 [4, n], in the order of `TERMS`; the bound is their sum.
    """
    t, apart = np.asarray(rounds, np.float64), clients if training == "relay" else 1.0
    smooth, noise, gap, distance = of.smoothness, of.noise, of.gap, of.distance
    all_steps, own_steps, own_rounds = clients * steps * t, apart * steps * t**2, apart * t**2
    match kind:
        case "strongly convex":
            mu = of.convexity
            terms = (
                noise / (mu * all_steps),
                smooth * noise / (mu**2 * own_steps),
                smooth * of.spread_at_optimum / (mu**2 * own_rounds),
                mu * distance**2 * np.exp(-mu * t / (12 * smooth)),
            )
        case "convex":
            terms = (
                distance * np.sqrt(noise / all_steps),
                np.cbrt(smooth * noise * distance**4 / own_steps),
                np.cbrt(smooth * of.spread_at_optimum * distance**4 / own_rounds),
                smooth * distance**2 / t,
            )
        case "non-convex":
            terms = (
                np.sqrt(smooth * noise * gap / all_steps),
                np.cbrt(smooth**2 * noise * gap**2 / own_steps),
                np.cbrt(smooth**2 * of.spread * gap**2 / own_rounds),
                smooth * (1 + of.slope**0.5) * gap / t,
            )
    return np.stack(terms)


def fitted_spread(squared_gradients: np.ndarray, spreads: np.ndarray) -> tuple[float, float]:
    """beta^2 and zeta^2, at least 0: the line beta^2 g + zeta^2 that bounds all measured spreads, and does so tightest.

    CyclicFL assumes (1/m) sum_i ||grad L_i - grad L||^2 <= beta^2 ||grad L||^2 + zeta^2 at every model. Of all such
    lines this is the one with the smallest sum of distances to the measured points, by linear programming.

    Args:
        squared_gradients: g, ||grad L||^2 at each model, [n].
        spreads: The mean squared distance of clients' gradients from grad L, [n].
    """
    widest, highest = float(squared_gradients.max()) or 1.0, float(spreads.max()) or 1.0
    columns = np.stack([squared_gradients / widest, np.ones(len(spreads))], axis=1)
    found = linprog(columns.sum(axis=0), A_ub=-columns, b_ub=-spreads / highest, bounds=(0, None))
    slope, rest = found.x
    return float(slope) * highest / widest, float(rest) * highest
