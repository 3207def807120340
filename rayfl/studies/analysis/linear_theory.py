"""`python -m rayfl.studies.analysis.linear_theory`: why bottom-up unfreezing makes clients agree faster.

The two-client model of "FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning", section 4, Figure 2
and appendix B: a linear network f(x) = x [a, b]^T v, whose first layer has a separate weight for each client and whose
last layer is shared. Client 1 minimises (a v - 1)^2, client 2 (b v - 1)^2, by gradient descent with learning rate lr,
and the server averages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from rayfl.errors import RayflError, ScenarioError

SETTLED = 5
"""Ratios are taken from the round after this one, when training is near a minimum."""
LOSS_ROUND = 20
"""The round whose loss is printed."""
_ROUNDING = 1e-10
"""Smaller discrepancies are rounding errors, and their ratios mean nothing."""


class Weights(NamedTuple):
    """The global model.

    Attributes:
        a: Client 1's weight in the first layer, a float64 array.
        b: Client 2's weight in the first layer, of the same shape.
        v: The weight of the shared last layer, of the same shape.
    """

    a: np.ndarray
    b: np.ndarray
    v: np.ndarray

    @property
    def discrepancy(self) -> np.ndarray:
        """|a - b|: how far apart the clients' first layers are."""
        discrepancy: np.ndarray = np.abs(self.a - self.b)
        return discrepancy

    @property
    def loss(self) -> np.ndarray:
        """The mean of the two clients' losses."""
        loss: np.ndarray = ((self.a * self.v - 1) ** 2 + (self.b * self.v - 1) ** 2) / 2
        return loss


def draw_weights(seeds: int) -> Weights:
    """Draws a, b and v from U[0, 2], [seeds] each; drawing more does not change the first ones."""
    a, b, v = np.random.default_rng(0).uniform(0, 2, (seeds, 3)).T
    return Weights(a, b, v)


def simulate(start: Weights, rounds: int, steps: int, lr: float, frozen_steps: int | None) -> Weights:
    """Simulates federated training from many initial models at once.

    Args:
        start: The initial models, [seeds].
        rounds: Number of rounds.
        steps: Local steps in a client update.
        lr: Learning rate.
        frozen_steps: Steps at the start of each client update that leave v fixed, as in FedBug with two modules. 0 is
            FedAvg; None keeps v fixed throughout, like the head in FedBABU.

    Returns:
        The global model at the start and after each round, [rounds + 1, seeds].

    Raises:
        ScenarioError: Training diverged.
    """
    history = [start]
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(rounds):
            a, b, v = history[-1]
            a_of_1, v_of_1 = _client_update(a, v, steps, lr, frozen_steps)
            b_of_2, v_of_2 = _client_update(b, v, steps, lr, frozen_steps)
            # each client returns the weight of the other one unchanged
            history.append(Weights((a_of_1 + a) / 2, (b + b_of_2) / 2, (v_of_1 + v_of_2) / 2))
    if not np.isfinite(history[-1]).all():
        raise ScenarioError(f"lr: training diverged with {lr:g}; choose a smaller one")
    return Weights(*np.stack(history, axis=1))


def _client_update(
    first: np.ndarray, last: np.ndarray, steps: int, lr: float, frozen_steps: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient descent on (first * last - 1)^2."""
    for step in range(steps):
        error = first * last - 1
        trained = last - lr * 2 * error * first
        first = first - lr * 2 * error * last
        if frozen_steps is not None and step >= frozen_steps:
            last = trained
    return first, last


def contraction_bound(
    first: np.ndarray, last: np.ndarray, lr: float, frozen_steps: int | None, alpha: float = 0.0
) -> np.ndarray:
    """Upper bound on the ratio of the discrepancies |a - b| of successive rounds, near a minimum (first, last).

    With s frozen steps, the bound is (1 + (1 - 2 lr last^2)^s cos^2(theta) (1 + alpha)) / 2, where theta is the angle
    between the local gradient, which is proportional to (last, first), and the axis of the last layer. The paper has
    s = 0 and s = 1; each further frozen step shrinks the remainder by the same factor again.

    Args:
        first: Weight of the first layer at the minimum; any shape.
        last: Weight of the last layer at the minimum, of the same shape.
        lr: Learning rate.
        frozen_steps: s; None, for a last layer that is always fixed, gives 1/2, the limit of many local steps.
        alpha: Deviation of the loss from its linearisation. With 0, the bound is the ratio in the limit.
    """
    if frozen_steps is None:
        return np.full_like(first, 0.5)
    cos_squared = first**2 / (first**2 + last**2)
    bound: np.ndarray = (1 + (1 - 2 * lr * last**2) ** frozen_steps * cos_squared * (1 + alpha)) / 2
    return bound


def ratios_by_round(history: Weights) -> np.ndarray:
    """The ratios of the discrepancies |a - b| of successive rounds, [rounds, seeds]; NaN for rounding errors."""
    before, after = history.discrepancy[:-1], history.discrepancy[1:]
    counts = before > _ROUNDING
    return np.where(counts, after / np.where(counts, before, 1), np.nan)


def contraction_ratio(history: Weights) -> np.ndarray:
    """Measures the ratio of the discrepancies |a - b| of successive rounds in a simulation.

    Args:
        history: The result of `simulate`, [rounds + 1, seeds].

    Returns:
        [seeds], the median over the rounds after SETTLED; NaN if only rounding errors are left by then.
    """
    ratios = ratios_by_round(history)[SETTLED:]
    medians = np.full(ratios.shape[1], np.nan)
    measured = np.isfinite(ratios).any(axis=0)
    medians[measured] = np.nanmedian(ratios[:, measured], axis=0)
    return medians


class Method(NamedTuple):
    """A method, simulated and in theory.

    Attributes:
        frozen_steps: As for `simulate`.
        history: Its simulation, [rounds + 1, seeds].
        theory: Bound on the contraction ratio near the minimum that was reached, [seeds].
    """

    frozen_steps: int | None
    history: Weights
    theory: np.ndarray

    @property
    def name(self) -> str:
        """What it is called."""
        match self.frozen_steps:
            case None:
                return "v always fixed"
            case 0:
                return "FedAvg"
            case 1:
                return "1 frozen step"
        return f"{self.frozen_steps} frozen steps"


def methods(seeds: int, rounds: int, steps: int, lr: float) -> list[Method]:
    """FedAvg, FedBug with several numbers of frozen steps, and a v that is always fixed, from the same initial models.

    Args:
        seeds: Number of initial models.
        rounds: Number of rounds.
        steps: Local steps in a client update.
        lr: Learning rate.

    Raises:
        ScenarioError: Training diverged.
    """
    start, found = draw_weights(seeds), []
    for frozen in [*(frozen for frozen in (0, 1, 5, 10, 25) if frozen < steps), None]:
        history = simulate(start, rounds, steps, lr, frozen)
        a, b, v = (weight[-1] for weight in history)
        found.append(Method(frozen, history, contraction_bound((a + b) / 2, v, lr, frozen)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints theory and simulation side by side; returns the exit status, 1 after an error."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.studies.analysis.linear_theory",
        description="FedBug's two-client linear network: how fast clients agree, in theory and simulated.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=50, help="number of starts, drawn from U[0, 2]")
    parser.add_argument("--rounds", type=int, default=80, help=f"at least {LOSS_ROUND}")
    parser.add_argument("--steps", type=int, default=50, help="local steps of a client update")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="also draw linear_theory.png and .pdf there, and write linear_theory.parquet, a row per seed and round",
    )
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.rounds < LOSS_ROUND or options.steps < 1 or options.lr <= 0:
        parser.error(f"--seeds and --steps must be at least 1, --rounds at least {LOSS_ROUND}, --lr above 0")
    try:
        found = methods(options.seeds, options.rounds, options.steps, options.lr)
        Console().print(table_of(found, options.steps, options.lr))
        if "out" in options:
            from rayfl.studies.analysis.linear_theory_figure import write  # loads matplotlib

            for path in write(found, options.out):
                print(path)
    except RayflError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def table_of(found: Sequence[Method], steps: int, lr: float) -> Table:
    """Compares theory and simulation, in medians over the seeds; a row for each method."""
    rounds, seeds = (size - less for size, less in zip(found[0].history.v.shape, (1, 0), strict=True))
    table = Table(
        title=f"Contraction ratio of |a - b|: {seeds} seeds, {rounds} rounds of {steps} local steps, lr {lr:g}",
        caption="Medians over the seeds. With v fixed, theory is the limit of many steps; a small v takes very many.",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("", no_wrap=True)
    for header in ("theory", "simulated", "largest difference", f"loss, round {LOSS_ROUND}"):
        table.add_column(header, justify="right", no_wrap=True)
    for method in found:
        simulated = contraction_ratio(method.history)
        table.add_row(
            method.name,
            f"{np.median(method.theory):.3f}",
            f"{np.nanmedian(simulated):.3f}",
            f"{np.nanmax(np.abs(method.theory - simulated)):.0e}",
            f"{np.median(method.history.loss[LOSS_ROUND]):.1e}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
