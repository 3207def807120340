"""Learning-rate schedules, and what algorithms that divide by lr K make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.local import Local, Rates
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.local.steps import effective_steps, rates
from tests.algorithms.reference import PlainUpdate, Vector, assert_equal_and_unlike, forward, mean, rounds, sizes
from tests.algorithms.scene import PLAIN, Setting, trained


@given(
    st.sampled_from(["constant", "cosine", "linear"]),
    st.integers(1, 60),
    st.integers(0, 80) | st.floats(0, 0.99),
    st.floats(0, 1),
)
def test_rates_rise_then_fall_and_stay_within_their_bounds(name: str, steps: int, warmup: Any, final: float) -> None:
    options = {"name": name, "warmup": warmup} | ({} if name == "constant" else {"final": final})
    found = rates(Rates.model_validate(options), steps)
    rising = min(warmup if isinstance(warmup, int) else round(warmup * steps), steps)
    assert len(found) == steps
    assert all(0 < rate <= 1 for rate in found)
    assert found[:rising] == sorted(found[:rising])
    assert found[rising:] == sorted(found[rising:], reverse=True)
    if rising < steps:
        assert found[rising] == 1.0


def coefficients(shares: list[float], momentum: float, pull: float = 0.0) -> float:
    """||a||_1 by brute force: where K steps of SGD with gradients e_1, ..., e_K end up, in units of -lr."""
    w, velocity = torch.zeros(len(shares), dtype=torch.float64), torch.zeros(len(shares), dtype=torch.float64)
    for step, share in enumerate(shares):
        velocity = momentum * velocity + torch.eye(len(shares), dtype=torch.float64)[step] + pull * w
        w = w - share * velocity
    return float(w.abs().sum())


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("schedule", [{}, {"name": "cosine"}, {"name": "linear", "warmup": 3}], ids=str)
def test_effective_steps_are_the_weights_of_the_gradients(schedule: dict[str, Any], momentum: float) -> None:
    shares = rates(Rates.model_validate(schedule), 11)
    assert effective_steps(shares, momentum) == pytest.approx(coefficients(shares, momentum), rel=1e-12)
    for pull in (0.1, 1.3) if not momentum else ():
        assert effective_steps(shares, 0.0, pull) == pytest.approx(coefficients(shares, 0.0, pull), rel=1e-12)


SCHEDULE = {"name": "cosine", "final": 0.1, "warmup": 1}
SETTING = PLAIN.with_local(momentum=0.5, lr_schedule=SCHEDULE)


def scheduled_sgd(update: PlainUpdate, w: Vector, setting: Setting, drift: Vector | None = None) -> Vector:
    """SGD with momentum and a rate for each step, on loss plus <drift, y>."""
    y, velocity = w.clone(), torch.zeros_like(w)
    for rows, share in zip(update.batches, rates(Rates.model_validate(SCHEDULE), update.K), strict=True):
        leaf = y.detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(forward(leaf, update.x[rows])[1], update.y[rows])
        (g,) = torch.autograd.grad(loss, leaf)
        velocity = setting.local["momentum"] * velocity + g + (0.0 if drift is None else drift)
        y = y - update.lr * share * velocity
    return y


def test_fednova_weights_clients_by_the_rates_of_their_steps() -> None:
    w = SETTING.initial()
    for cohort in rounds(SETTING):
        taus = [coefficients(rates(Rates.model_validate(SCHEDULE), update.K), 0.5) for update in cohort]
        changes = [(scheduled_sgd(update, w, SETTING) - w) / tau for update, tau in zip(cohort, taus, strict=True)]
        p = np.array(sizes(cohort)) / sum(sizes(cohort))
        w = w + float(p @ np.array(taus)) * mean(changes, sizes(cohort))
    assert_equal_and_unlike(trained("fednova", SETTING), w, trained("fedavg", SETTING), SETTING)


def test_scaffolds_second_option_divides_by_the_sum_of_the_rates() -> None:
    w, own = SETTING.initial(), torch.zeros(SETTING.clients, len(SETTING.initial()), dtype=torch.float64)
    control = torch.zeros_like(w)
    for cohort in rounds(SETTING):
        deltas, changes = [], []
        for update in cohort:
            y = scheduled_sgd(update, w, SETTING, control - own[update.client])
            tau = coefficients(rates(Rates.model_validate(SCHEDULE), update.K), 0.5)
            new = own[update.client] - control + (w - y) / (tau * update.lr)
            changes.append(new - own[update.client])
            own[update.client] = new
            deltas.append(y - w)
        w = w + mean(deltas)
        control = control + torch.stack(changes).sum(dim=0) / SETTING.clients
    constant = PLAIN.with_local(momentum=0.5)
    assert_equal_and_unlike(trained("scaffold", SETTING), w, trained("scaffold", constant), SETTING)


def test_the_rounds_of_a_phase_have_a_schedule_of_their_own_beside_decay_and_drops() -> None:
    """Round 3 of the scenario is the first of the second phase, which has four."""
    local = {"lr": 0.8, "lr_decay": 0.5, "lr_drops": [4], "round_schedule": {"name": "linear", "final": 0.2}}
    tables = {
        "data": {"name": "people"},
        "model": "m",
        "phases": [
            {"name": "a", "rounds": 2, "cohort": 1, "local": {"lr": 0.4}},
            {"name": "b", "rounds": 4, "cohort": 1, "local": local},
        ],
    }
    scenario = Scenario.from_tables(tables)
    assert [RoundIndex(0, number, number).lr(scenario) for number in (1, 2)] == [0.4, 0.4]
    found = [RoundIndex(1, number + 2, number).lr(scenario) for number in (1, 2, 3, 4)]
    assert found == pytest.approx([0.8 / 4, 0.8 / 8 * 0.8, 0.8 / 16 * 0.6 * 0.1, 0.8 / 32 * 0.4 * 0.1])


def test_a_cosine_over_rounds_is_what_an_algorithm_sees_as_the_rate() -> None:
    shares = [(1 + np.cos(np.pi * number / PLAIN.rounds)) / 2 for number in range(PLAIN.rounds)]
    setting = PLAIN.with_local(lr_decay=1.0, round_schedule="cosine")
    w = setting.initial()
    for number, cohort in enumerate(rounds(setting)):
        for update in cohort:
            update.lr *= shares[number]
        w = w + mean([update.sgd(w) - w for update in cohort], sizes(cohort))
    assert_equal_and_unlike(trained("fedavg", setting), w, trained("fedavg", PLAIN), setting)


@pytest.mark.parametrize(
    ("schedule", "complaint"),
    [
        ("cosin", "name\n"),
        ({"final": 0.5}, "final has no effect with name = 'constant'; leave it out"),
        ({"name": "cosine", "final": 2.0}, "final\n"),
        ({"warmup": -1}, "warmup"),
        ({"warmup": 1.0}, "warmup"),
    ],
)
@pytest.mark.parametrize("key", ["lr_schedule", "round_schedule"])
def test_a_schedule_that_means_nothing_is_rejected(key: str, schedule: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=key) as caught:
        Local.model_validate({key: schedule})
    assert complaint in str(caught.value)
