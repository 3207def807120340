"""What the protocol would move, against the closed forms of CyclicFL's Table IV: 2 [S_c T_c + S_p (T - T_c)] X."""

from __future__ import annotations

from typing import Any

import pytest

from rayfl.algorithms import algorithms
from rayfl.engine.events import RoundDone, Traffic
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts

NUM_PARAMS = 24_492
"""CNN-Fashion-MNIST with 62 outputs: 21 840 + 52 * (50 + 1)."""


PEOPLE: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
}
PEOPLES_PARAMS = 83
"""4 -> 6 -> 5 -> 3: 4 * 6 + 6 + 6 * 5 + 5 + 5 * 3 + 3."""

NUMBERS_SENT_UP = {"fedexp": 1, "fednova": 1, "qfedavg": 1, "qfedsgd": 1}
"""Beside models: the change's norm, the number of steps, h_k."""


def total(phases: list[dict[str, Any]], hosts: int = 2, **changes: Any) -> Traffic:
    _, events = run_on_hosts(prepared(phases=phases, **changes), hosts)
    return [event for event in events if isinstance(event, RoundDone)][-1].traffic


def test_cyclic_then_fedavg_moves_two_models_per_visit() -> None:
    moved = total([PRETRAIN | {"rounds": 3, "cohort": 4}, FEDERATED | {"rounds": 2, "cohort": 5}])
    models = 2 * (4 * 3 + 5 * 2)
    assert moved == Traffic(models, models * 4 * NUM_PARAMS)


def test_fedavg_moves_two_models_per_visit() -> None:
    moved = total([FEDERATED | {"rounds": 3, "cohort": 5}], hosts=1)
    assert moved == Traffic(2 * 5 * 3, 2 * 5 * 3 * 4 * NUM_PARAMS)


@pytest.mark.parametrize("name", list(algorithms))
def test_a_visit_moves_two_models_and_with_scaffold_four(name: str) -> None:
    moved = total([FEDERATED | {"rounds": 3, "cohort": 5, "algorithm": name}], **PEOPLE)
    models = 3 * 5 * (4 if name == "scaffold" else 2)
    assert moved == Traffic(models, 4 * (models * PEOPLES_PARAMS + 3 * 5 * NUMBERS_SENT_UP.get(name, 0)))


@pytest.mark.parametrize("report", ["all", "cloud"])
def test_what_feddyn_reports_costs_its_clients_nothing(report: str) -> None:
    """The server could keep each client's last model itself: two models a visit, as in CyclicFL's table."""
    algorithm = {"name": "feddyn", "report": report}
    assert total([FEDERATED | {"rounds": 3, "cohort": 5, "algorithm": algorithm}], **PEOPLE).transfers == 3 * 5 * 2


def test_scaffold_after_a_relay_moves_what_cyclicfl_says() -> None:
    """2 [S_c T_cyc + 2 S_p (T - T_cyc)] X: a relay needs no control variates."""
    scaffold = {"algorithm": "scaffold"}
    moved = total(
        [PRETRAIN | scaffold | {"rounds": 3, "cohort": 4}, FEDERATED | scaffold | {"rounds": 2, "cohort": 5}], **PEOPLE
    )
    models = 2 * (4 * 3 + 2 * 5 * 2)
    assert moved == Traffic(models, models * 4 * PEOPLES_PARAMS)
