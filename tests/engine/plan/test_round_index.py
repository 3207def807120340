"""The learning rate of a round."""

from __future__ import annotations

import pytest

from rayfl.config.scenario import Scenario
from rayfl.engine.plan.rounds import RoundIndex
from tests.engine.scenes import FEDERATED, PRETRAIN, tables


def rates(**local: object) -> list[float]:
    """Of ten rounds: four of a relay, then six of a parallel phase, with the same local training."""
    phases = [PRETRAIN | {"rounds": 4, "local": local}, FEDERATED | {"rounds": 6, "local": local}]
    scenario = Scenario.from_tables(tables(phases=phases))
    return [RoundIndex(int(round > 4), round, round - 4 * (round > 4)).lr(scenario) for round in range(1, 11)]


def test_decay_counts_through_all_phases() -> None:
    assert rates(lr=0.5, lr_decay=0.9) == pytest.approx([0.5 * 0.9**n for n in range(10)])


def test_drops_come_after_the_rounds_they_name() -> None:
    assert rates(lr=0.1, lr_drops=[3, 8]) == pytest.approx([0.1] * 3 + [0.01] * 5 + [0.001] * 2)
    assert rates(lr=0.1, lr_drops=[5], lr_drop=0.5) == pytest.approx([0.1] * 5 + [0.05] * 5)


def test_decay_and_drops_may_count_from_the_beginning_of_the_phase() -> None:
    assert rates(lr=0.5, lr_decay=0.9, lr_decay_from="phase") == pytest.approx(
        [0.5 * 0.9**n for n in (*range(4), *range(6))]
    )
    assert rates(lr=0.1, lr_drops=[3, 8], lr_decay_from="phase") == pytest.approx(
        [0.1, 0.1, 0.1, 0.01, *[0.1] * 3, *[0.01] * 3]
    )
