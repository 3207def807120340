"""Ditto: personal models against float64, and a global model that is FedAvg's to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.events import RoundDone
from rayfl.streams import client_stream
from tests.algorithms.reference import PlainUpdate, Vector, assert_equal, distance, linear, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, PLAIN, SEED, Setting, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, run_on_hosts, snapshot_of

MU = 0.4


def personal_models(setting: Setting, hosts: int = 2, **options: Any) -> dict[int, Vector]:
    """float64, by client: what clients keep in the end, without padding."""
    job, model = prepared({"name": "ditto", "mu": MU, **options}, setting)
    scheduler, _ = cast(job, hosts)
    list(scheduler.run())
    store = MemoryStore()
    states = kept_by_clients(snapshot_of(scheduler, store), store)
    kept = {client: state["phase/personal"] for client, state in states.items()}
    return {
        client: torch.cat([part.flatten() for part in model.state_dict(torch.from_numpy(vector)).values()]).double()
        for client, vector in kept.items()
    }


class SecondTraining(PlainUpdate):
    """The same client's second training request of an exchange, which has its own order."""

    def __init__(self, setting: Setting, client: int, round: int) -> None:
        super().__init__(setting, client, round)
        order, size = client_stream(SEED, "order", 0, round, client, 0, 1), setting.local["batch_size"]
        passes = [order.permutation(self.n) for _ in range(setting.local["epochs"])]
        self.batches = [rows[first : first + size] for rows in passes for first in range(0, self.n, size)]


@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING], ids=["plain", "momentum, decay, clipping"])
def test_personal_models_are_those_of_the_paper(setting: Setting) -> None:
    w = setting.initial()
    personal: dict[int, Vector] = {}
    for number, cohort in enumerate(rounds(setting), start=1):
        for update in cohort:
            received = w.clone()
            start = personal.get(update.client, received)
            own = SecondTraining(setting, update.client, number)
            personal[update.client] = own.sgd(start, penalty=linear(-MU * received, MU))
        w = w + mean([update.sgd(w) - w for update in cohort], sizes(cohort))
    ours = personal_models(setting)
    assert ours.keys() == personal.keys()
    for client, expected in personal.items():
        assert_equal(ours[client], expected, setting)
        assert distance(ours[client], w, setting) > 1e-2, "it is no global model"


def test_without_a_pull_a_client_trains_by_itself() -> None:
    """One client, always: what others do must not show in its model."""
    alone = Setting(((4,),), 4, PLAIN.local)
    together = Setting(((4, 0, 9),), 4, PLAIN.local)
    first, second = (personal_models(setting, mu=0.0)[4] for setting in (alone, together))
    assert torch.equal(first, second)
    assert not torch.equal(personal_models(alone)[4], personal_models(together)[4])


@pytest.mark.parametrize("rule", ["global", "all"])
def test_the_global_model_has_the_bits_of_fedavg(rule: str) -> None:
    models = [run_on_hosts(prepared(name, PLAIN, {"eval_model": rule})[0], 2)[0] for name in ("fedavg", "ditto")]
    assert np.array_equal(models[0], models[1])


def test_personal_models_depend_neither_on_hosts_nor_cost_traffic() -> None:
    one, other = (personal_models(PLAIN, hosts) for hosts in (1, 2))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[client], other[client]) for client in one)
    traffic = []
    for name in ("fedavg", "ditto"):
        _, events = run_on_hosts(prepared(name, PLAIN)[0], 1)
        traffic.append([event.traffic for event in events if isinstance(event, RoundDone)])
    assert traffic[0] == traffic[1]
