"""FedAvg against the reference: weights, server rate, and everything a local step may have."""

from __future__ import annotations

import pytest

from tests.algorithms.reference import assert_equal, assert_equal_and_unlike, fedavg
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained

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
    ours = trained({"name": "fedavg", "server_lr": server_lr}, PLAIN)
    assert_equal_and_unlike(ours, fedavg(PLAIN, server_lr=server_lr), fedavg(PLAIN), PLAIN)


def test_full_batches() -> None:
    setting = PLAIN.with_local(batch_size="full", epochs=3)
    assert_equal(trained("fedavg", setting), fedavg(setting), setting)
