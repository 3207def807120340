"""What the protocol would move, against the closed forms of CyclicFL's Table IV: 2 [S_c T_c + S_p (T - T_c)] X."""

from __future__ import annotations

from rayfl.engine.events import RoundDone, Traffic
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts

NUM_PARAMS = 24_492
"""CNN-Fashion-MNIST with 62 outputs: 21 840 + 52 * (50 + 1)."""


def total(phases: list[dict[str, object]], hosts: int = 2) -> Traffic:
    _, events = run_on_hosts(prepared(phases=phases), hosts)
    return [event for event in events if isinstance(event, RoundDone)][-1].traffic


def test_cyclic_then_fedavg_moves_two_models_per_visit() -> None:
    moved = total([PRETRAIN | {"rounds": 3, "cohort": 4}, FEDERATED | {"rounds": 2, "cohort": 5}])
    models = 2 * (4 * 3 + 5 * 2)
    assert moved == Traffic(models, models * 4 * NUM_PARAMS)


def test_fedavg_moves_two_models_per_visit() -> None:
    moved = total([FEDERATED | {"rounds": 3, "cohort": 5}], hosts=1)
    assert moved == Traffic(2 * 5 * 3, 2 * 5 * 3 * 4 * NUM_PARAMS)
