"""What the protocol would move, against the closed forms of CyclicFL's Table IV: 2 [S_c T_c + S_p (T - T_c)] X."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from rayfl.engine.events import RoundDone
from rayfl.engine.totals import Traffic
from tests.algorithms.scene import CLASSES, INPUTS, OF_ANY_SCENE, supported
from tests.engine.scenes import FEDERATED, PRETRAIN, prepared, run_on_hosts

LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 16, "momentum": 0.5}

NUM_PARAMS = 24_492
"""CNN-Fashion-MNIST with 62 outputs: 21 840 + 52 * (50 + 1)."""


PEOPLE: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": {"name": "tests.algorithms.scene:TanhNet"},
}
PEOPLES_PARAMS = 83
"""4 -> 6 -> 5 -> 3: 4 * 6 + 6 + 6 * 5 + 5 + 5 * 3 + 3."""
BODY_PARAMS = 65
"""The same without the last layer, which FedBABU never trains and never sends."""

NUMBERS_SENT_UP = {"fedexp": 1, "fednova": 1, "qfedavg": 2, "qfedsgd": 2, "coprefl": 1}
"""Beside models: the change's norm, the number of steps, F_k and h_k, the query loss."""
NUMBERS_SENT_DOWN = {"qfedavg": 1, "qfedsgd": 1}
"""Beside models: the largest loss of the cohort."""


def both_ways(models: int, num_params: int, numbers_up: int = 0, numbers_down: int = 0) -> Traffic:
    """Half of the models go down and half of them up, as float32."""
    down, up = models // 2 * num_params + numbers_down, models // 2 * num_params + numbers_up
    return Traffic(models, down, up, 4 * down, 4 * up)


def total(phases: list[dict[str, Any]], hosts: int = 2, **changes: Any) -> Traffic:
    _, events = run_on_hosts(prepared(phases=phases, **changes), hosts)
    return [event for event in events if isinstance(event, RoundDone)][-1].traffic


def test_cyclic_then_fedavg_moves_two_models_per_client_update() -> None:
    local = {"local": {"steps": 1, "batch_size": 4}}
    moved = total([PRETRAIN | local | {"rounds": 2, "cohort": 3}, FEDERATED | local | {"rounds": 2, "cohort": 2}])
    assert moved == both_ways(2 * (3 * 2 + 2 * 2), NUM_PARAMS)


@pytest.mark.parametrize("name", OF_ANY_SCENE)
def test_a_client_update_moves_two_models_and_with_scaffold_and_coprefl_four(name: str) -> None:
    local = {"local": supported(name, LOCAL)}
    moved = total([FEDERATED | local | {"rounds": 3, "cohort": 5, "algorithm": name}], **PEOPLE)
    models = 3 * 5 * (4 if name in ("scaffold", "coprefl") else 2)
    num_params = BODY_PARAMS if name in ("fedbabu", "fedper") else PEOPLES_PARAMS
    up, down = (3 * 5 * sent.get(name, 0) for sent in (NUMBERS_SENT_UP, NUMBERS_SENT_DOWN))
    assert moved == both_ways(models, num_params, up, down)


@pytest.mark.parametrize("order", ["first", "exact"])
def test_learned_rates_travel_with_the_model(order: str) -> None:
    """The model and its rates down, a gradient of each up."""
    phase = {"rounds": 3, "cohort": 5, "algorithm": {"name": "fedmeta", "variant": "meta_sgd", "order": order}}
    assert total([FEDERATED | phase | {"local": {}}], **PEOPLE) == both_ways(3 * 5 * 4, PEOPLES_PARAMS)


@pytest.mark.parametrize("eval_model", ["all", "average"])
@pytest.mark.parametrize("algorithm", ["feddyn", "fednova"])
def test_which_model_is_evaluated_costs_clients_nothing(algorithm: str, eval_model: str) -> None:
    """The server could keep each client's last model itself: two models a client update, as in CyclicFL's table."""
    phase = FEDERATED | {"rounds": 3, "cohort": 5, "algorithm": algorithm}
    assert total([phase | {"eval_model": eval_model}], **PEOPLE) == total([phase], **PEOPLE)


def test_training_on_the_servers_samples_has_no_traffic() -> None:
    local = {"steps": 2, "lr": 0.1}
    data = {"data": {"name": "tests.algorithms.scene:people", "server_share": 0.3}}
    phase = FEDERATED | {"rounds": 3, "cohort": 5, "algorithm": {"name": "coprefl", "queries": "server"}}
    moved = total([phase | {"server_training": local}], **PEOPLE | data)
    assert moved == both_ways(2 * 5 * 3, PEOPLES_PARAMS)


def test_scaffold_after_a_relay_moves_what_cyclicfl_says() -> None:
    """2 [S_c T_cyc + 2 S_p (T - T_cyc)] X: a relay needs no control variates."""
    scaffold = FEDERATED | {"rounds": 2, "cohort": 5, "algorithm": "scaffold"}
    moved = total([PRETRAIN | {"rounds": 3, "cohort": 4}, scaffold], **PEOPLE)
    models = 2 * (4 * 3 + 2 * 5 * 2)
    assert moved == both_ways(models, PEOPLES_PARAMS)


@pytest.mark.parametrize(
    ("train", "num_params"),
    [("body", BODY_PARAMS), ("head", PEOPLES_PARAMS - BODY_PARAMS), (["first"], 4 * 6 + 6), (["second"], 6 * 5 + 5)],
)
@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_modules_that_a_phase_never_trains_are_not_sent(schedule: str, train: Any, num_params: int) -> None:
    phase = {"schedule": schedule, "rounds": 2, "cohort": 5, "local": {"batch_size": 16}, "train": train}
    moved = total([FEDERATED | phase], **PEOPLE)
    assert moved == both_ways(2 * 5 * 2, num_params)


def test_modules_that_thaw_later_are_sent() -> None:
    local = {"batch_size": 4, "epochs": 3, "unfreeze": {"share": 1.0}}
    assert total([FEDERATED | {"rounds": 2, "cohort": 5, "local": local}], **PEOPLE) == both_ways(20, PEOPLES_PARAMS)


class Adapted(nn.Module):
    """A frozen base with batch norm and a trained adapter of rank 2: 2 * 4 + 10 * 2 parameters, and 20 statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.norm = nn.Linear(INPUTS, 10).requires_grad_(False), nn.BatchNorm1d(10, affine=False)
        self.out = nn.Linear(10, CLASSES).requires_grad_(False)
        self.a, self.b = nn.Parameter(0.1 * torch.randn(2, INPUTS)), nn.Parameter(torch.zeros(10, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.out(torch.tanh(self.norm(self.base(x) + x @ self.a.T @ self.b.T)))
        return outputs


class FollowedInForward(Adapted):
    """Moves a mean of its adapter itself: 20 more."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slow", self.b.detach().clone())
        self.slow: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.slow.lerp_(self.b, 1e-4)
        return super().forward(x)


class FollowedAtTheStart(Adapted):
    """Copies its adapter whenever training begins: 20 more."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slow", self.b.detach().clone())
        self.slow: torch.Tensor

    def train(self, mode: bool = True) -> FollowedAtTheStart:
        if mode and hasattr(self, "slow"):
            with torch.no_grad():
                self.slow.copy_(self.b)
        return super().train(mode)


class FollowedByItsTask(Adapted):
    """Declares what its task moves: 3 * 10 + 3 more."""

    copies = {"target": "out"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.target = copy.deepcopy(self.out)


SENT = {"Adapted": 48, "FollowedInForward": 68, "FollowedAtTheStart": 68, "FollowedByItsTask": 48 + 33}


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
@pytest.mark.parametrize("network", SENT)
def test_frozen_parameters_are_not_sent_but_buffers_and_what_the_task_moves_are(network: str, schedule: str) -> None:
    """With a virtual clock, which ends a run that moves something else than planned."""
    of_network = PEOPLE | {"model": {"name": f"{__name__}:{network}"}, "participation": {"steps_per_s": 1.0}}
    phase = FEDERATED | {"schedule": schedule, "rounds": 2, "cohort": 5}
    assert total([phase], **of_network) == both_ways(2 * 5 * 2, SENT[network])


class Masked(Adapted):
    """A causal mask and indices, which nothing changes, and a count of the samples that it has trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(64, 64, dtype=torch.bool).tril())
        self.register_buffer("places", torch.arange(100))
        self.register_buffer("seen", torch.tensor(0))
        self.seen: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += len(x)
        return super().forward(x)


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_constant_integers_and_flags_are_not_sent(schedule: str) -> None:
    of_network = PEOPLE | {"model": {"name": f"{__name__}:Masked"}, "participation": {"steps_per_s": 1.0}}
    phase = FEDERATED | {"schedule": schedule, "rounds": 2, "cohort": 5}
    models = 2 * 5
    sent = both_ways(2 * models, SENT["Adapted"])
    count = Traffic(0, models, models, 8 * models, 8 * models)
    assert total([phase], **of_network) == sent + count


def test_scaffolds_control_variates_have_the_size_of_what_trains() -> None:
    of_network = PEOPLE | {"model": {"name": f"{__name__}:Adapted"}}
    moved = total([FEDERATED | {"rounds": 2, "cohort": 5, "algorithm": "scaffold"}], **of_network)
    assert moved == both_ways(2 * 5 * 4, 28, 2 * 5 * 20, 2 * 5 * 20)


def test_a_trial_of_frozen_parameters_leaves_the_network_as_it_was() -> None:
    job = prepared(phases=[FEDERATED], **PEOPLE | {"model": {"name": f"{__name__}:FollowedInForward"}})
    initial = job.workloads[0].initial
    assert {slot.name for slot in initial.constant_slots} == {"base.weight", "base.bias", "out.weight", "out.bias"}
    by_name = {slot.name: slot.array(initial.vector) for slot in initial.layout}
    assert not by_name["slow"].any()
    assert not by_name["norm.running_mean"].any()
