from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from rayfl.errors import ScenarioError
from rayfl.privacy.clients.accounting import Release, Sampling, accountants_of, epsilon_of, gaussian_epsilon
from rayfl.privacy.composition import history

DELTA = 190**-1.1
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def with_accountant(accountant: dp_accounting.PrivacyAccountant, *events: tuple[dp_accounting.DpEvent, int]) -> float:
    for event, times in events:
        accountant.compose(event, times)
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.parametrize(
    ("noise", "rate", "rounds"),
    [(1.0, 0.1, 20), *(pytest.param(*slow, marks=pytest.mark.slow) for slow in ((0.7, 0.25, 20), (4.0, 0.1, 900)))],
)
def test_poisson_cohorts_have_the_epsilon_of_dp_accounting(noise: float, rate: float, rounds: int) -> None:
    spent = history({Release(noise, "poisson", rate): rounds})
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    exact = with_accountant(PLDAccountant(ADD), (event, rounds))
    assert exact - 1e-3 <= epsilon_of(spent, DELTA, "prv") <= exact + 0.03  # the PRV accountant's own error, above
    by_rdp = with_accountant(RdpAccountant(neighboring_relation=ADD), (event, rounds))
    assert epsilon_of(spent, DELTA, "rdp") == pytest.approx(by_rdp, rel=0.01)


@pytest.mark.parametrize(
    ("noise", "cohort", "rounds"),
    [(2.0, 19, 100), *(pytest.param(*slow, marks=pytest.mark.slow) for slow in ((1.0, 50, 20), (6.0, 10, 900)))],
)
def test_cohorts_of_fixed_size_have_the_epsilon_of_dp_accounting(noise: float, cohort: int, rounds: int) -> None:
    spent = history({Release(noise, "without_replacement", cohort / 190): rounds})
    event = SampledWithoutReplacementDpEvent(190, cohort, GaussianDpEvent(noise))
    expected = with_accountant(RdpAccountant(neighboring_relation=REPLACE), (event, rounds))
    assert epsilon_of(spent, DELTA, "rdp") == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_phases_of_different_noise_compose_as_in_dp_accounting() -> None:
    sampled, known = Release(2.0, "without_replacement", 0.1), Release(5.0, "none")
    events = (
        (SampledWithoutReplacementDpEvent(190, 19, GaussianDpEvent(2.0)), 50),
        (GaussianDpEvent(5.0), 3),
    )
    expected = with_accountant(RdpAccountant(neighboring_relation=REPLACE), *events)
    assert epsilon_of(history({sampled: 50, known: 3}), DELTA, "rdp") == pytest.approx(expected, rel=0.01)
    two = history({Release(1.0, "poisson", 0.1): 30, Release(2.0, "poisson", 0.3): 10})
    poisson = [(1.0, 0.1, 30), (2.0, 0.3, 10)]
    exact = with_accountant(
        PLDAccountant(ADD), *((PoissonSampledDpEvent(rate, GaussianDpEvent(z)), n) for z, rate, n in poisson)
    )
    assert exact - 1e-3 <= epsilon_of(two, DELTA, "prv") <= exact + 0.03


def test_noise_without_sampling_has_the_exact_epsilon_of_a_gaussian() -> None:
    rounds = 7
    expected = with_accountant(PLDAccountant(ADD), (GaussianDpEvent(4.0), rounds))
    assert epsilon_of(history({Release(4.0, "none"): rounds}), DELTA, "exact") == pytest.approx(expected, rel=1e-3)
    assert gaussian_epsilon(math.sqrt(rounds) / 4, DELTA) == pytest.approx(expected, rel=1e-3)
    assert gaussian_epsilon(1e-3, DELTA) == 0


def test_phases_without_sampling_add_up_their_squares() -> None:
    """Gaussians of noise 2, 3 and 6 are one of noise (1/4 + 1/9 + 1/36)^-1/2."""
    mixed = history({Release(2.0, "none"): 1, Release(3.0, "none"): 1, Release(6.0, "none"): 1})
    one = history({Release((1 / 4 + 1 / 9 + 1 / 36) ** -0.5, "none"): 1})
    assert epsilon_of(mixed, DELTA, "exact") == pytest.approx(epsilon_of(one, DELTA, "exact"), rel=1e-9)


@pytest.mark.parametrize(("samplings", "secure", "names"), [
    ({"none"}, False, ("exact",)),
    ({"poisson"}, False, ("prv", "rdp")),
    ({"poisson", "none"}, False, ("rdp",)),
    ({"without_replacement"}, False, ("rdp",)),
    ({"none"}, True, ("rdp",)),
    ({"poisson"}, True, ("rdp",)),
])  # fmt: skip
def test_which_accountants_compose_a_kind_of_sampling(
    samplings: set[Sampling], secure: bool, names: tuple[str, ...]
) -> None:
    assert accountants_of(samplings, secure) == names


def test_a_cohort_of_everybody_is_no_sample() -> None:
    everybody, known = (history({Release(3.0, kind, 1.0): 5}) for kind in ("poisson", "none"))
    assert epsilon_of(everybody, DELTA, "rdp") == epsilon_of(known, DELTA, "rdp")


def test_nothing_released_costs_nothing_and_no_noise_costs_everything() -> None:
    assert epsilon_of((), DELTA, "prv") == 0
    assert epsilon_of(history({Release(0.0, "poisson", 0.1): 1}), DELTA, "prv") == math.inf
    assert history({Release(1.0, "poisson", 0.1): 0}) == ()


def test_an_epsilon_too_large_for_numerical_composition_is_bounded_by_renyi_divergence() -> None:
    spent = history({Release(0.05, "poisson", 0.5): 100})
    assert epsilon_of(spent, DELTA, "prv") == epsilon_of(spent, DELTA, "rdp") > 100


def test_a_delta_that_prv_cannot_resolve_is_rejected_with_a_remedy() -> None:
    spent = history({Release(1.0, "poisson", 0.2): 80})
    with pytest.raises(ScenarioError, match=r"^dp: accountant 'prv' cannot compute epsilon at delta = 1e-15 .*'rdp'"):
        epsilon_of(spent, 1e-15, "prv")


@pytest.mark.parametrize("noise", [1e-300, 1e-99, 1e-9, 1e-3, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(("sampling", "rate"), [("without_replacement", 0.4), ("without_replacement", 0.9)])
def test_a_cohort_has_no_larger_epsilon_than_all_clients(sampling: Sampling, rate: float, noise: float) -> None:
    for rounds in (1, 10):
        drawn = epsilon_of(history({Release(noise, sampling, rate): rounds}), 0.1, "rdp")
        everybody = epsilon_of(history({Release(noise, "none"): rounds}), 0.1, "exact")
        assert 0 <= drawn <= everybody
