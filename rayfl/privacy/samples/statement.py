"""The guarantee of `local.dp` as privacy.json states it, warnings before a run, and explanations of a large epsilon.

docs/explanation/privacy.md explains the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rayfl.config.privacy import SampleDP
from rayfl.local.spending import Spending


def json_number(value: float) -> float | str:
    """Returns a number as JSON can represent it: infinity as the word "infinite"."""
    return value if math.isfinite(value) else "infinite"


LARGE_EPSILON = 10.0
"""An epsilon above which the output explains why it is large."""


def notes(
    sizes: np.ndarray, delta: float, epsilon: float | None, costliest: Callable[[], tuple[int, Spending] | None]
) -> list[str]:
    """Returns warnings and explanations, one line each.

    Args:
        sizes: [clients] training samples of each.
        delta: Delta of the guarantee.
        epsilon: The largest of any client at the end of the run; None if no accountant covers it.
        costliest: Finds the client that will have spent the most, and its spending.
    """
    samples, lines = int(sizes.sum()), []
    if delta > 1 / samples:
        lines.append(
            f"local.dp.delta = {delta:g} is above 1 / ({samples:,} training samples): a mechanism may fully "
            f"reveal a sample with that probability; use at most {10 ** math.floor(-math.log10(samples)):g}"
        )
    if epsilon is not None and LARGE_EPSILON < epsilon < math.inf and (worst := costliest()) is not None:
        client, spent = worst
        rate = max((mechanism.rate for mechanism in spent), default=0.0)
        lines.append(
            f"the largest epsilon is client {client}'s: a step draws each of its {sizes[client]:,} training "
            f"samples with rate {rate:.3g}, which hides little; fewer steps, smaller batches, more noise or larger "
            "clients make it smaller"
        )
    if epsilon == math.inf:
        lines.append("noise_multiplier = 0 hides nothing: epsilon is infinite, and this run gives no guarantee")
    return lines


UNIT = "one training sample of a client"

RELATION = (
    "two data sets are neighbours if one sample of one client is replaced by a null record, whose gradient and loss "
    "are zero; the number of samples of a client is the same in both"
)

PUBLIC = (
    "the scenario, the numbers of samples of all clients, the cohorts of all rounds, the noise multipliers, the "
    "samples that the server holds, and the weights that the run starts from"
)

ADVERSARY = (
    "sees every message of every client and all cohorts, so sampling of cohorts does not amplify the privacy of a "
    "client; does not see evaluations: test scores, training losses and scores of single clients are computed without "
    "noise for the experimenter and not released"
)

COMPOSITION = {
    "prv": "numerical composition of privacy loss random variables (Gopi et al., NeurIPS 2021), Opacus' PRVAccountant",
    "rdp": "Rényi differential privacy (Mironov, 2017), Opacus' RDPAccountant",
}

SCOPE = (
    "one account per client over all phases and committed rounds, with secure noise also over all rounds that were "
    "charged but not committed; parts of its samples that are drawn once compose in parallel; training on the "
    "samples of all clients together counts for each of them"
)

POISSON = "every step draws each sample independently with rate min(1, batch_size / samples)"

NOT_COVERED = "not covered by the accountant"

SHUFFLED = f"shuffled batches: {NOT_COVERED}"

SEEDED = (
    "simulated DP: the seed of noise and batches is public in the records; the guarantee holds for the same run with a "
    "secret source of randomness"
)

SECURE = (
    "noise and batches come from the operating system's cryptographic source; contributions are integers, and the "
    "noise is discrete Gaussian, drawn exactly"
)

ROUNDED = "rounding of the noise to floating point, whose gaps reveal the value that it was added to (Mironov, 2012)"

AT_INTEGERS = ", at integer orders, where discrete Gaussians have the moments of continuous ones"

STARTED = "the model that the run starts from, if it was trained on the same samples"

EXPERIMENTERS = "training losses, evaluations and records of single clients, which only the experimenter sees"

ERRORS = "errors that end a run"


def sampling(phases: Sequence[SampleDP]) -> str:
    """Describes how steps draw their samples."""
    return SHUFFLED if any(dp.sampling == "shuffled" for dp in phases) else POISSON


def randomness(phases: Sequence[SampleDP]) -> str:
    """Describes the source of noise and batches."""
    return SECURE if all(dp.secure for dp in phases) else SEEDED


def statement(phases: Sequence[SampleDP], started: bool = False) -> dict[str, str | float | list[str]]:
    """Returns the guarantee of a run, without its epsilon, by aspect.

    Args:
        phases: `local.dp` of every phase that has it; all have the same delta and accountant.
        started: Whether the run starts from a model that was trained before.
    """
    return {
        "level": "sample",
        "unit": UNIT,
        "neighbouring_relation": RELATION,
        "public": PUBLIC,
        "adversary": ADVERSARY,
        "sampling": sampling(phases),
        "composition": COMPOSITION[phases[0].accountant] + (AT_INTEGERS if phases[0].secure else ""),
        "scope": SCOPE,
        "not_covered": [
            EXPERIMENTERS,
            ERRORS,
            *([] if phases[0].secure else [ROUNDED]),
            *([STARTED] if started else []),
        ],
        "randomness": randomness(phases),
        "delta": phases[0].delta,
    }
