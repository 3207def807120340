"""FedAvg against the reference: weights, server rate, and everything a local step may have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.algorithms.reference import assert_equal, assert_equal_and_unlike, fedavg, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, prepared, trained
from tests.engine.scenes import run_on_hosts

SETTINGS = {"plain": PLAIN, "everything": EVERYTHING, "full": FULL}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_clients_count_by_their_samples(setting: Setting) -> None:
    assert_equal_and_unlike(trained("fedavg", setting), fedavg(setting), fedavg(setting, uniform=True), setting)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_clients_count_alike_with_uniform_weighting(setting: Setting) -> None:
    ours = trained({"name": "fedavg", "weighting": "uniform"}, setting)
    assert_equal_and_unlike(ours, fedavg(setting, uniform=True), fedavg(setting), setting)


@pytest.mark.parametrize("server_lr", [0.4, 1.5])
def test_the_server_goes_its_rate_times_the_mean_change(server_lr: float) -> None:
    ours = trained({"name": "fedavg", "server_optimizer": {"name": "sgd", "lr": server_lr}}, PLAIN)
    assert_equal_and_unlike(ours, fedavg(PLAIN, server_lr=server_lr), fedavg(PLAIN), PLAIN)


def test_full_batches() -> None:
    setting = PLAIN.with_local(batch_size="full", epochs=3)
    assert_equal(trained("fedavg", setting), fedavg(setting), setting)


def test_samples_come_in_the_order_of_the_shard_where_they_are_not_shuffled() -> None:
    w = PLAIN.initial()
    for cohort in rounds(PLAIN):
        for update in cohort:
            passes = [np.arange(update.n)] * PLAIN.local["epochs"]
            update.batches = [rows[start : start + 6] for rows in passes for start in range(0, update.n, 6)]
        w = mean([update.sgd(w) for update in cohort], sizes(cohort))
    ours = trained("fedavg", PLAIN.with_local(shuffle=False))
    assert_equal_and_unlike(ours, w, fedavg(PLAIN), PLAIN)


def test_a_phase_may_count_its_learning_rate_from_its_own_first_round() -> None:
    """After a phase of two rounds whose rate is so small that nothing moves."""
    still = {"name": "still", "rounds": 2, "cohort": 1, "local": {"lr": 1e-30}}
    models = []
    for start in ("scenario", "phase"):
        local = {**PLAIN.local, "batch_size": "full", "lr_decay_from": start}
        phase = {"name": "p", "rounds": 3, "cohort": {"explicit": [list(PLAIN.cohorts[0])]}, "local": local}
        job, model = prepared("fedavg", PLAIN, phases=[still, phase])
        state = model.state_dict(torch.from_numpy(run_on_hosts(job, 1)[0]))
        models.append(torch.cat([part.flatten() for part in state.values()]).double())
    setting = replace(PLAIN, cohorts=PLAIN.cohorts[:1], rounds=3).with_local(batch_size="full")
    later = setting.with_local(lr=PLAIN.local["lr"] * PLAIN.local["lr_decay"] ** 2)
    assert_equal_and_unlike(models[1], fedavg(setting), fedavg(later), setting)
    assert_equal(models[0], fedavg(later), setting)
