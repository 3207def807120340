"""Modules with their own rate: the effect of a step on them, for any rate of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.errors import ScenarioError
from tests.algorithms.scene import TanhNet
from tests.engine.scenes import prepared, run_on_hosts

PEOPLE: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
}
LOCAL = {"epochs": 2, "batch_size": "full", "lr": 0.1, "lr_decay": 0.5, "momentum": 0.9}


def trained(local: dict[str, Any], hosts: int = 1, **phase: Any) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    job = prepared(**PEOPLE, phases=[{"name": "p", "rounds": 2, "cohort": 3, "local": LOCAL | local} | phase])
    vector = run_on_hosts(job, hosts)[0]
    initial = job.workloads[0].initial
    values = {slot.name: slot.view(torch.from_numpy(np.array(vector))).clone() for slot in initial.layout}
    return values, vector


@pytest.mark.parametrize("optimizer", ["sgd", "adam", {"name": "sgd", "nesterov": True}, "muon"], ids=str)
def test_a_module_trains_at_its_own_rate_and_the_others_at_theirs(optimizer: Any) -> None:
    """Frozen otherwise, so that one's rate has no effect on the other's gradients."""
    of = {"optimizer": optimizer, "momentum": 0.0 if optimizer in ("adam", "muon") else 0.9}
    alone, _ = trained(of | {"lr": 0.02, "lr_decay": 1.0}, train=["read_out"])
    own, _ = trained(of | {"module_lr": {"read_out": 0.02}}, train=["read_out"])
    assert all(torch.equal(alone[name], own[name]) for name in alone)


def test_patterns_give_the_rates_of_what_they_name() -> None:
    named, _ = trained({"module_lr": {"first.bias": 0.02, "second.bias": 0.02, "read_out.bias": 0.02}})
    by_pattern, _ = trained({"module_lr": {"*.bias": 0.02}})
    assert all(torch.equal(named[name], by_pattern[name]) for name in named)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_step_is_that_of_pytorch_with_parameter_groups(optimizer: str) -> None:
    one: dict[str, Any] = {"epochs": 3, "lr_decay": 1.0, "lr_schedule": "linear", "module_lr": {"first": 0.3}}
    one |= {"optimizer": optimizer, "momentum": 0.9 if optimizer == "sgd" else 0.0}
    phase = {"name": "p", "rounds": 1, "cohort": {"explicit": [[4]]}, "local": LOCAL | one}
    job = prepared(**PEOPLE, phases=[phase])
    initial, store = job.workloads[0].initial, job.workloads[0].store
    vector = torch.from_numpy(run_on_hosts(job, 1)[0])
    network, start = TanhNet(store.num_classes or 0), torch.from_numpy(np.array(initial.vector))
    network.load_state_dict({slot.name: slot.view(start) for slot in initial.layout})
    first, others = [*network.first.parameters()], [*network.second.parameters(), *network.read_out.parameters()]
    groups: list[dict[str, Any]] = [{"params": first}, {"params": others}]
    sgd = optimizer == "sgd"
    steps = torch.optim.SGD(groups, lr=0.1, momentum=0.9) if sgd else torch.optim.Adam(groups, lr=0.1)
    rows = store.train_shards[4]
    x, y = torch.from_numpy(store.train.x[rows]), torch.from_numpy(store.train.y[rows])
    for step in range(3):
        steps.param_groups[0]["lr"], steps.param_groups[1]["lr"] = 0.3, 0.1 * (1 - step / 3)
        steps.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(network(x), y))
        steps.step()
    state = network.state_dict()
    for slot in initial.layout:
        torch.testing.assert_close(slot.view(vector), state[slot.name], rtol=0, atol=2e-6)


def test_the_same_bits_on_any_number_of_hosts() -> None:
    local = {"module_lr": {"first": 0.3, "read_out": 0.01}}
    assert np.array_equal(trained(local)[1], trained(local, 3)[1])


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ({"local": LOCAL | {"module_lr": {"predictor": 0.05}}}, r"module_lr: model TanhNet has no module 'predictor'"),
        ({"local": LOCAL | {"module_lr": {"pred*": 0.05}}}, r"module_lr: no module and no parameter of model TanhNet"),
        (
            {"local": LOCAL | {"module_lr": {"first": 0.05, "*.bias": 0.1}}},
            r"module_lr: 'first\.bias' has two rates, one of them by '\*\.bias'; leave one out",
        ),
        ({"local": LOCAL | {"module_lr": {"first": 0.05}}, "train": ["second"]}, "no parameter of 'first' trains"),
        (
            {"local": LOCAL | {"module_lr": {"first": 0.05}}, "algorithm": "scaffold"},
            r"phases\.p\.local\.module_lr: 'scaffold' does not work with several learning rates",
        ),
        ({"local": LOCAL | {"module_lr": {"first": 0}}}, r"local\.module_lr\.first"),
    ],
)
def test_nonsense_is_rejected(phase: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        prepared(**PEOPLE, phases=[{"name": "p", "rounds": 1, "cohort": 3} | phase])
