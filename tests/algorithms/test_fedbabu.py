"""FedBABU against FedAvg of the body: the head keeps its initial value, to the last bit."""

from __future__ import annotations

import pytest
import torch

from tests.algorithms.reference import MODULE_OF, Vector, assert_equal_and_unlike, fedavg, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, FULL, PLAIN, Setting, trained

BODY = torch.from_numpy(MODULE_OF < 2)


def fedbabu(setting: Setting, *, uniform: bool = True) -> Vector:
    w = setting.initial()
    for cohort in rounds(setting):
        models = [update.sgd(w, trains=lambda _: BODY.double()) for update in cohort]
        w = mean(models, None if uniform else sizes(cohort))
    return w


@pytest.mark.parametrize("setting", [PLAIN, FULL, EVERYTHING], ids=["plain", "full", "everything"])
def test_fedbabu(setting: Setting) -> None:
    ours = trained("fedbabu", setting)
    assert_equal_and_unlike(ours, fedbabu(setting), fedavg(setting, uniform=True), setting)
    assert torch.equal(ours[~BODY], setting.initial()[~BODY])


def test_clients_may_count_by_their_samples() -> None:
    ours = trained({"name": "fedbabu", "weighting": "samples"}, PLAIN)
    assert_equal_and_unlike(ours, fedbabu(PLAIN, uniform=False), fedbabu(PLAIN), PLAIN)


def test_it_is_fedavg_of_the_body() -> None:
    body = trained({"name": "fedavg", "weighting": "uniform"}, EVERYTHING, train="body")
    assert torch.equal(trained("fedbabu", EVERYTHING), body)
    assert torch.equal(trained("fedbabu", EVERYTHING, train="body"), body)


def test_a_phase_may_restrict_it_further() -> None:
    narrow = trained("fedbabu", EVERYTHING, train=["second", "read_out"])
    assert torch.equal(narrow, trained({"name": "fedavg", "weighting": "uniform"}, EVERYTHING, train=["second"]))
