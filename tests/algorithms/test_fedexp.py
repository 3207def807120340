"""FedExP against the formula of its paper, and against those of the three code bases that have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from rayfl.engine.events import RoundDone
from tests.algorithms.reference import (
    PlainUpdate,
    Vector,
    assert_equal,
    assert_equal_and_unlike,
    fedavg,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import EVERYBODY, FULL, PARTIAL, USUAL, Setting, prepared, trained
from tests.engine.scenes import run_on_hosts

FEW = Setting(PARTIAL, 4, {**USUAL, "lr": 1.0, "epochs": 6})
"""Changes so long that even FedBug's form, whose epsilon is the number of participants, extrapolates."""
MANY = Setting(EVERYBODY, 1, {**USUAL, "lr": 0.5, "epochs": 8})


def fedexp(
    setting: Setting,
    form: str = "paper",
    eval_model: str = "average",
    epsilon: float = 1e-3,
    decay: float = 0.998,
    weighting: str = "uniform",
) -> tuple[Vector, list[float]]:
    """The evaluated model, and eta_g of every round."""
    w, rates = setting.initial(), []
    for t, cohort in enumerate(rounds(setting)):
        before, p = w, sizes(cohort) if weighting == "samples" else [1.0] * len(cohort)
        changes = [update.sgd(w) - w for update in cohort]
        squared = sum(p_i * float(d.square().sum()) for p_i, d in zip(p, changes, strict=True)) / sum(p)
        change, number = mean(changes, p), len(cohort)
        if form in ("paper", "feddecorr"):
            rate = squared / (2 * (float(change.square().sum()) + epsilon))
        elif form == "code":
            # main.py shrinks epsilon and the local rate at the top of every round, the first included
            rate = squared / (2 * (float(change.square().sum()) + number * epsilon * decay ** (2 * (t + 1))))
        else:
            rate = squared / (float(change.square().sum()) + number)
        rates.append(max(1.0, rate))
        w = w + rates[-1] * change
    return (w + before) / 2 if eval_model == "average" and setting.rounds > 1 else w, rates


@pytest.mark.parametrize(
    ("form", "weighting", "eval_model"),
    [  # each value of each: form, weights and evaluated model do not meet in any formula
        ("paper", "uniform", "average"),
        ("code", "samples", "global"),
        ("feddecorr", "samples", "average"),
        ("fedbug", "uniform", "global"),
    ],
)
def test_fedexp(form: str, weighting: str, eval_model: str) -> None:
    expected, rates = fedexp(FEW, form, eval_model, weighting=weighting)
    assert min(rates) >= 1 < max(rates) - 0.2
    ours = trained({"name": "fedexp", "form": form, "weighting": weighting}, FEW, eval_model=eval_model)
    assert_equal_and_unlike(ours, expected, fedavg(FEW, uniform=weighting == "uniform"), FEW)


def test_full_participation() -> None:
    expected, rates = fedexp(MANY, "code")
    assert max(rates) > 2
    ours = trained({"name": "fedexp", "form": "code"}, MANY)
    assert_equal_and_unlike(ours, expected, fedavg(MANY, uniform=True), MANY)


def test_many_participants_turn_fedbugs_form_off() -> None:
    ours = trained({"name": "fedexp", "form": "fedbug"}, MANY, eval_model="global")
    assert_equal(ours, fedavg(MANY, uniform=True), MANY)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_epsilon_holds_the_extrapolation_back(form: str) -> None:
    options: dict[str, Any] = {"form": form, "epsilon": 0.1}
    expected, rates = fedexp(FEW, eval_model="global", **options)
    assert max(rates) > 1.2
    ours = trained({"name": "fedexp", **options}, FEW, eval_model="global")
    assert_equal_and_unlike(ours, expected, fedexp(FEW, eval_model="global", **(options | {"epsilon": 0.05}))[0], FEW)


def test_the_codes_epsilon_shrinks_from_the_first_round_on() -> None:
    """With a fast decay, so that a round more or less of it is plain to see: from 0.5^2 epsilon in the first round."""
    options: dict[str, Any] = {"form": "code", "epsilon": 0.3, "decay": 0.5}
    expected, rates = fedexp(FEW, eval_model="global", **options)
    assert max(rates) > 1.2
    ours = trained({"name": "fedexp", **options}, FEW, eval_model="global")
    assert_equal_and_unlike(ours, expected, fedexp(FEW, eval_model="global", **(options | {"epsilon": 0.075}))[0], FEW)


TWO_PHASES = Setting(PARTIAL, 4, {**USUAL, "batch_size": "full", "lr": 1.0, "lr_decay": 0.7, "epochs": 20})
"""Of two rounds each. Full batches, so that no order of samples differs between phases."""


def extrapolations(decay_rounds: Sequence[int], epsilon: float, decay: float) -> list[float]:
    """eta_g of every round, where rate and epsilon have decayed as if it were these rounds (from 1)."""
    w, rates = TWO_PHASES.initial(), []
    for number, cohort in zip(decay_rounds, TWO_PHASES.cohorts, strict=True):
        changes = [PlainUpdate(TWO_PHASES, client, number).sgd(w) - w for client in cohort]
        squared = sum(float(change.square().sum()) for change in changes) / len(changes)
        shrunk = len(changes) * epsilon * decay ** (2 * number)
        rates.append(max(1.0, squared / (2 * (float(mean(changes).square().sum()) + shrunk))))
        w = w + rates[-1] * mean(changes)
    return rates


@pytest.mark.parametrize("counted_from", ["scenario", "phase"])
def test_the_codes_epsilon_shrinks_in_step_with_the_rate_through_two_phases(counted_from: str) -> None:
    def phase(name: str, cohorts: Sequence[Sequence[int]]) -> dict[str, Any]:
        return {
            "name": name,
            "algorithm": {"name": "fedexp", "form": "code", "epsilon": 3.0, "decay": 0.6},
            "rounds": 2,
            "cohort": {"explicit": [list(cohort) for cohort in cohorts]},
            "local": {**TWO_PHASES.local, "lr_decay_from": counted_from},
            "eval_model": "global",
        }

    phases = [phase("first", PARTIAL[:2]), phase("second", PARTIAL[2:])]
    _, events = run_on_hosts(prepared("fedexp", TWO_PHASES, phases=phases)[0], 1)
    found = [event.scalars["server_step"] for event in events if isinstance(event, RoundDone)]
    expected, other = (extrapolations(rounds, 3.0, 0.6) for rounds in ([1, 2, 3, 4], [1, 2, 1, 2]))
    if counted_from == "phase":
        expected, other = other, expected
    assert found == pytest.approx(expected, rel=1e-4)
    assert abs(expected[2] - other[2]) > 0.1


def test_the_first_round_has_no_average() -> None:
    setting = replace(FEW, rounds=1)
    assert_equal(trained("fedexp", setting), fedexp(setting, eval_model="global")[0], setting)


def test_training_goes_on_from_the_last_model_not_from_the_average() -> None:
    twice = replace(FEW, rounds=2)
    last, average = (trained("fedexp", twice, eval_model=rule) for rule in ("global", "average"))
    first = trained("fedexp", replace(FEW, rounds=1), eval_model="global")
    assert torch.allclose(average, (first + last) / 2, rtol=0, atol=1e-6)
    assert (last - first).norm() > 0.1


@pytest.mark.parametrize("form", ["paper", "fedbug"])
def test_where_clients_agree_nothing_is_extrapolated(form: str) -> None:
    """One participant a round: ||delta||^2 over twice itself is below one, or, with FedBug's form, over more."""
    alone = Setting([[3], [7], [3]], 3, FEW.local)
    ours = trained({"name": "fedexp", "form": form}, alone, eval_model="global")
    assert_equal(ours, fedavg(alone), alone)


def test_local_training_is_fedavgs() -> None:
    setting = FULL.with_local(momentum=0.6, weight_decay=0.02, clip_norm=0.4)
    assert_equal(trained("fedexp", setting), fedexp(setting)[0], setting)
