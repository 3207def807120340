"""What `local.dp` guarantees, in the words of every run's privacy.json; docs/explanation/privacy.md explains it."""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.config.privacy import SampleDP

UNIT = "one training sample of a client"

RELATION = (
    "two data sets are neighbours if one sample of one client is replaced by a null record, whose gradient and loss "
    "are zero; the number of samples of a client is the same in both"
)

PUBLIC = (
    "the scenario, the numbers of samples of all clients, who takes part in which round, the noise multipliers, the "
    "samples that the server holds, and the weights that the run starts from"
)

ADVERSARY = (
    "sees every message of every client and who takes part, so that a client's account gets no amplification from the "
    "sampling of cohorts; does not see what is evaluated: test scores, training losses and scores of single clients "
    "are the experimenter's own view, computed without noise and not released"
)

COMPOSITION = {
    "prv": "numerical composition of privacy loss random variables (Gopi et al., NeurIPS 2021), Opacus' PRVAccountant",
    "rdp": "Rényi differential privacy (Mironov, 2017), Opacus' RDPAccountant",
}

SCOPE = (
    "one account per client over all phases, of the rounds that were committed, and with secure noise of all that were "
    "charged in vain beside them; parts of its samples that are drawn "
    "once compose in parallel; training on all clients' samples together counts for each of them"
)

POISSON = "every step draws each sample independently with rate min(1, batch_size / samples)"

NOT_COVERED = "not covered by the accountant"

SHUFFLED = f"shuffled batches: {NOT_COVERED}"

SEEDED = (
    "simulated DP: the seed of noise and batches is public in the records; the guarantee is that of the same run with "
    "a secret source"
)

SECURE = (
    "noise and batches come from the operating system's cryptographic source; contributions are integers, and the "
    "noise is discrete Gaussian, drawn exactly"
)

ROUNDED = "rounding of the noise to floating point, whose gaps tell what it was added to (Mironov, 2012)"

AT_INTEGERS = ", at integer orders, where discrete Gaussians have the moments of continuous ones"

STARTED = "the model that the run starts from, if that was trained on the same samples"

EXPERIMENTERS = "training losses, evaluations and records of single clients: the experimenter's own view"

ERRORS = "errors that end a run"


def sampling(phases: Sequence[SampleDP]) -> str:
    """How steps draw their samples."""
    return SHUFFLED if any(dp.sampling == "shuffled" for dp in phases) else POISSON


def randomness(phases: Sequence[SampleDP]) -> str:
    """Where noise and batches come from."""
    return SECURE if all(dp.secure for dp in phases) else SEEDED


def statement(phases: Sequence[SampleDP], started: bool = False) -> dict[str, str | float | list[str]]:
    """The guarantee of a run but for its epsilon, by aspect.

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
