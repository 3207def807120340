"""The noise for a target meets it with little to spare, according to the test's own accountants."""

from __future__ import annotations

import math
from collections import Counter
from typing import Literal

import pytest

from rayfl.local.spending import Mechanism
from rayfl.privacy.samples.accounting import Accountant
from rayfl.privacy.samples.calibration import Access, ImpossibleTargetError, Planned, noise_of_all, noise_of_each
from tests.privacy.samples.test_accounting import DELTA, by_opacus

Name = Literal["prv", "rdp"]
CLOSE = 0.98


def epsilon(name: Name, planned: Planned, noise: float) -> float:
    """For clients whose mechanisms use all of their samples."""
    used = Counter[tuple[float, float]]()
    for mechanism, steps in planned.spending(noise).items():
        used[mechanism.noise_multiplier, mechanism.rate] += steps
    return by_opacus(name, [(*key, steps) for key, steps in sorted(used.items())])


@pytest.mark.parametrize(
    ("name", "target", "accesses"),
    [  # sampled, whole and mixed; a small, a usual and a large target
        ("prv", 2.0, {Access(0.07): 20}),
        ("rdp", 2.0, {Access(0.07): 20}),
        ("rdp", 0.5, {Access(1.0): 20}),
        ("rdp", 8.0, {Access(0.01): 600, Access(1.0): 2}),
        pytest.param("prv", 0.5, {Access(1.0): 20}, marks=pytest.mark.slow),
        pytest.param("prv", 8.0, {Access(0.01): 600, Access(1.0): 2}, marks=pytest.mark.slow),
    ],
)
def test_epsilon_is_at_most_the_target_and_hardly_less(name: Name, target: float, accesses: dict[Access, int]) -> None:
    planned = Planned({}, accesses)
    noise = noise_of_all([planned], target, Accountant(name, DELTA))
    assert CLOSE * target <= epsilon(name, planned, noise) <= target


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_earlier_spending_is_part_of_it(name: Name) -> None:
    planned = Planned({Mechanism(2.0, 0.07): 30}, {Access(0.1): 40})
    noise = noise_of_all([planned], 4.0, Accountant(name, DELTA))
    assert CLOSE * 4 <= epsilon(name, planned, noise) <= 4
    assert noise > noise_of_all([Planned({}, planned.accesses)], 4.0, Accountant(name, DELTA))


def test_one_noise_for_all_is_that_of_the_client_that_needs_the_most() -> None:
    accountant = Accountant("prv", DELTA)
    planned = [Planned({}, {Access(10 / samples): 6}) for samples in (140, 60)]
    noise = noise_of_all(planned, 4.0, accountant)
    found = [epsilon("prv", each, noise) for each in planned]
    assert CLOSE * 4 <= found[1] <= 4
    assert found[0] < found[1]


@pytest.mark.slow
def test_the_client_that_needs_the_most_need_not_be_the_first_by_rdp() -> None:
    planned = [Planned({}, {Access(32 / n): math.ceil(n / 32)}) for n in (125, 126, 127, 128, 32)]
    noise = noise_of_all(planned, 4.3, Accountant("prv", DELTA))
    found = [epsilon("prv", each, noise) for each in planned]
    assert CLOSE * 4.3 <= found[-1] == max(found) <= 4.3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_with_noise_of_its_own_every_client_is_close_to_the_target(name: Name) -> None:
    planned = [Planned({}, {Access(10 / samples): 30}) for samples in (60, 140, 400)]
    noises = noise_of_each(planned, 4.0, Accountant(name, DELTA))
    assert noises == sorted(noises, reverse=True)
    for each, noise in zip(planned, noises, strict=True):
        assert CLOSE * 4 <= epsilon(name, each, noise) <= 4


def test_parts_share_their_noise_and_the_costlier_decides() -> None:
    accountant = Accountant("rdp", DELTA)
    both = noise_of_all([Planned({}, {Access(0.2, "support"): 30, Access(1.0, "query"): 2})], 3.0, accountant)
    alone = [noise_of_all([Planned({}, {access: steps})], 3.0, accountant) for access, steps in
             ((Access(0.2), 30), (Access(1.0), 2))]  # fmt: skip
    assert both == max(alone)


@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_a_target_that_is_spent_before_is_impossible(name: Name) -> None:
    planned = Planned({Mechanism(1.0, 0.1): 30}, {Access(0.1): 1})
    with pytest.raises(ImpossibleTargetError):
        noise_of_all([planned], 1.0, Accountant(name, DELTA))


def test_a_target_below_what_the_accountant_can_tell_is_impossible() -> None:
    with pytest.raises(ImpossibleTargetError):
        noise_of_all([Planned({}, {Access(0.1): 10})], 0.001, Accountant("rdp", DELTA))
