"""Which modules train at which step, against FedBug's formulas in whole numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import accumulate

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from rayfl.config.local import Local, Train, Unfreezing
from rayfl.local.training_plan import select, thawed_units, training_stages
from rayfl.models.network import Network


def paper(per_mille: int, steps: int, units: int) -> list[int]:
    """m = min(M, ceil(k M / (P K))) as whole numbers: one more than there are j with j P K < k M."""
    return [
        min(units, 1 + sum(j * per_mille * steps < 1000 * k * units for j in range(1, units + 1)))
        for k in range(1, steps + 1)
    ]


def code(per_mille: int, steps: int, units: int) -> list[int]:
    """The period phi = floor(P K / M); unit j, from 0, trains from iteration j phi on, iterations from 0."""
    phi = per_mille * steps // (1000 * units)
    return [sum(j * phi <= c for j in range(units)) for c in range(steps)]


def scheduled(schedule: str, per_mille: int, steps: int, units: int) -> list[int]:
    unfreeze = Unfreezing.model_validate({"share": float(Decimal(per_mille) / 1000), "schedule": schedule})
    return [thawed_units(unfreeze, step, steps, units) for step in range(1, steps + 1)]


shares = st.integers(1, 1000)
lengths = st.integers(1, 150)
numbers_of_units = st.integers(1, 17)


@given(shares, lengths, numbers_of_units)
def test_the_papers_schedule(per_mille: int, steps: int, units: int) -> None:
    assert scheduled("paper", per_mille, steps, units) == paper(per_mille, steps, units)


@given(shares, lengths, numbers_of_units)
def test_the_codes_schedule(per_mille: int, steps: int, units: int) -> None:
    assume(per_mille * steps >= 1000 * units)
    assert scheduled("code", per_mille, steps, units) == code(per_mille, steps, units)


@given(st.integers(1, 5), numbers_of_units, st.sampled_from([1, 2, 4, 5, 8, 20]))
def test_both_are_one_where_every_unit_has_a_whole_number_of_steps(period: int, units: int, parts: int) -> None:
    """P = 1 / parts and K = parts * period * M, so that P K / M is the period."""
    steps = parts * period * units
    expected = [min(units, c // period + 1) for c in range(steps)]
    assert scheduled("paper", 1000 // parts, steps, units) == expected
    assert scheduled("code", 1000 // parts, steps, units) == expected


@given(shares, lengths, numbers_of_units)
def test_the_first_unit_trains_from_the_first_step_and_none_freezes_again(
    per_mille: int, steps: int, units: int
) -> None:
    thawed = scheduled("paper", per_mille, steps, units)
    assert thawed == sorted(thawed)
    assert thawed[0] >= 1
    assert thawed[-1] == units
    # everything is thawed in the last step of the share, if not before
    assert thawed[math.ceil(per_mille * steps / 1000) - 1] == units


@given(shares, lengths, numbers_of_units)
def test_in_the_codes_schedule_something_is_frozen_for_all_but_one_period(
    per_mille: int, steps: int, units: int
) -> None:
    phi = per_mille * steps // (1000 * units)
    assume(phi)
    assert sum(m < units for m in scheduled("code", per_mille, steps, units)) == (units - 1) * phi


@pytest.mark.parametrize(
    ("share", "steps", "phi"), [(0.1, 50, 1), (0.4, 50, 4), (0.1, 100, 2), (0.4, 100, 8), (0.2, 50, 2)]
)
@pytest.mark.parametrize("schedule", ["paper", "code"])
def test_the_papers_settings_with_five_modules(schedule: str, share: float, steps: int, phi: int) -> None:
    """CIFAR-100: K = 50, 10 % is a period of 1, 40 % one of 4. CIFAR-10: K = 100."""
    unfreeze = Unfreezing.model_validate({"share": share, "schedule": schedule})
    thawed = [thawed_units(unfreeze, step, steps, 5) for step in range(1, steps + 1)]
    assert thawed == [*(m for m in range(1, 5) for _ in range(phi)), *[5] * (steps - 4 * phi)]


def test_products_that_fall_below_an_integer_in_floating_point() -> None:
    """0.29 * 100 is 28.999999999999996, and 0.3 * 10 / 3 as 0.1 + 0.2 above 1."""
    assert int(0.29 * 100) == 28
    unfreeze = Unfreezing(share=0.29, schedule="code")
    assert [thawed_units(unfreeze, step, 100, 29) for step in range(1, 31)] == [*range(1, 30), 29]
    assert scheduled("code", 580, 50, 29) == [*range(1, 30), *[29] * 21]
    assert scheduled("paper", 300, 10, 3) == [1, 2, *[3] * 8]
    assert scheduled("paper", 70, 100, 7) == [*range(1, 7), *[7] * 94]


def test_a_share_of_nothing_freezes_nothing() -> None:
    for schedule in ("paper", "code"):
        unfreeze = Unfreezing.model_validate({"share": 0, "schedule": schedule})
        assert {thawed_units(unfreeze, step, 7, 5) for step in range(1, 8)} == {5}
    assert thawed_units(Unfreezing(share=1e-5), 1, 7, 5) == 5


class Tower(Network):
    """Six layers; three blocks, two stages."""

    ordered_modules = ("a", "b", "c", "d", "e", "f")
    feature_layer = "f"
    groupings = {  # noqa: RUF012
        "blocks": (("a", "b"), ("c", "d"), ("e", "f")),
        "stages": (("a", "b", "c", "d"), ("e", "f")),
    }

    def __init__(self) -> None:
        super().__init__()
        for name in self.ordered_modules:
            self.add_module(name, nn.Linear(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.ordered_modules:
            x = self.get_submodule(name)(x)
        return x


def trains(steps: int, train: Train = "all", **unfreeze: object) -> list[str]:
    """By step, the letters of the modules that train."""
    local, tower = Local.model_validate({"unfreeze": unfreeze} if unfreeze else {}), Tower()
    stages = training_stages(local, select([train], tower), tower, steps)
    assert sum(count for count, _ in stages) == steps
    assert all(count > 0 for count, _ in stages)
    return [_letters(names) for count, names in stages for _ in range(count)]


def _letters(names: frozenset[str] | None) -> str:
    """Of the modules, all parameters of which are among the names, if any is."""
    if names is None:
        return "abcdef"
    letters = sorted({name[0] for name in names})
    assert names == {f"{letter}.{parameter}" for letter in letters for parameter in ("weight", "bias")}
    return "".join(letters)


def test_modules_thaw_from_the_input() -> None:
    assert trains(8, share=0.75) == list(accumulate("abcdef")) + ["abcdef"] * 2


def test_groupings_thaw_as_a_whole() -> None:
    assert trains(6, share=1.0, units="blocks") == ["ab", "ab", "abcd", "abcd", "abcdef", "abcdef"]
    assert trains(6, share=1.0, units="stages") == ["abcd"] * 3 + ["abcdef"] * 3


def test_top_down_modules_thaw_from_the_output() -> None:
    assert trains(6, share=1.0, order="top_down") == ["f", "ef", "def", "cdef", "bcdef", "abcdef"]
    assert trains(4, share=1.0, order="top_down", units="stages") == ["ef", "ef", "abcdef", "abcdef"]


def test_fixed_modules_never_thaw_and_are_no_units() -> None:
    assert trains(4, "body") == ["abcde"] * 4
    assert trains(4, tuple("abcd")) == ["abcd"] * 4
    assert trains(4, tuple("abcd"), share=1.0) == ["a", "ab", "abc", "abcd"]
    assert trains(4, tuple("abcd"), share=1.0, order="top_down") == ["d", "cd", "bcd", "abcd"]
    assert trains(4, tuple("abcd"), share=1.0, units="blocks") == ["ab", "ab", "abcd", "abcd"]
    assert trains(6, "body", share=1.0, units="blocks") == ["ab", "ab", "abcd", "abcd", "abcde", "abcde"]


def test_everything_trains_where_nothing_is_asked_for() -> None:
    assert trains(3) == ["abcdef"] * 3
