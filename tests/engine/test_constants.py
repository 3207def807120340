"""Frozen parameters are constants: in no vector and no message, and training has the same bits as with them there."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.engine.events import Evaluated
from rayfl.engine.host import Host
from rayfl.engine.initial_model import flat_model
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ClientError, ScenarioError
from rayfl.models.tensors import SentModel
from rayfl.runs.committed_rounds import CommittedModels
from rayfl.runs.preparation import prepare
from tests.algorithms.scene import FIRST, INPUTS, SECOND, TanhNet
from tests.engine.scenes import FEDERATED, TINY, cast, run_on_hosts, tables

HERE = __name__
LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.1}


class Frozen(TanhNet):
    """Its second layer is frozen, between two that train."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.second.requires_grad_(False)


class Normed(Frozen):
    """With statistics, whose place in the vector frozen parameters used to move."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.first = nn.Sequential(nn.Linear(INPUTS, FIRST), nn.BatchNorm1d(FIRST))  # type: ignore[assignment]


class WithUnused(TanhNet):
    """With a large frozen part that no output depends on."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.unused = nn.Linear(70, 1000).requires_grad_(False)

    ordered_modules = (*TanhNet.ordered_modules, "unused")
    groupings = {}  # noqa: RUF012


class Half(TanhNet):
    """Computes its second layer with frozen weights in bfloat16."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.second = nn.Linear(FIRST, SECOND).to(torch.bfloat16).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.second(torch.tanh(self.first(x)).to(torch.bfloat16))
        logits: torch.Tensor = self.read_out(torch.tanh(hidden.float()))
        return logits


class Moves(Frozen):
    """Moves a frozen weight in forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.move()
        return super().forward(x)

    def move(self) -> None:
        with torch.no_grad():
            self.second.weight.lerp_(torch.ones_like(self.second.weight), 0.1)


class MovesUncounted(Moves):
    def move(self) -> None:
        self.second.bias.data.mul_(0.9)


class Replaces(Moves):
    def move(self) -> None:
        self.second.weight.data = 0.9 * self.second.weight.data


class MovesLater(Moves):
    """The trial of the network has batches of two samples only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) > 2:
            self.move()
        return TanhNet.forward(self, x)


def plan(network: str, *phases: dict[str, Any], whole: bool = False, **changes: Any) -> RunPlan:
    module = HERE if network in globals() and network != "TanhNet" else "tests.algorithms.scene"
    name = network if ":" in network else f"{module}:{network}"
    of_phases = [{"name": f"p{number}"} | FEDERATED | {"local": LOCAL} | phase for number, phase in enumerate(phases)]
    of_phases = [phase | {"name": f"p{number}"} for number, phase in enumerate(of_phases)]
    made = tables(**TINY | {"model": {"name": name}, "phases": of_phases} | changes)
    return prepare(Scenario.from_tables(made), Path("no-data-here"), whole)[0]


def result(job: RunPlan, hosts: int = 2) -> tuple[dict[str, bytes], list[tuple[str, Any]]]:
    """The bytes of the final model, and the scores of every evaluated round."""
    scheduler, server = cast(job, hosts)
    events = list(scheduler.run())
    scores = [(str(event.round), event.scores) for event in events if isinstance(event, Evaluated)]
    return state_of(job, *server.committed()), scores


def state_of(job: RunPlan, round: int, committed: SentModel) -> dict[str, bytes]:
    """The bytes of the whole model after a round, by name."""
    state = CommittedModels(job, flat_model(job.scenario, job.result)).after(round, committed)
    return {name: value.reshape(-1).view(torch.uint8).numpy().tobytes() for name, value in state.items()}


DP = {"level": "central", "delta": 0.01, "noise_multiplier": 0.5, "clip_norm": 0.5}
WAYS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "relay": {"schedule": "relay"},
    "scaffold": {"algorithm": "scaffold"},
    "fedadam": {"algorithm": "fedadam"},
    "clipped": {"local": LOCAL | {"clip_norm": 0.1, "momentum": 0.9, "weight_decay": 0.01}},
    "top_k": {"transforms": [{"name": "top_k", "share": 0.2}]},
    "quantize": {"transforms": [{"name": "quantize", "bits": 4}]},
    "dp": {"algorithm": {"name": "fedavg", "weighting": "uniform"}, "cohort": {"bernoulli": 0.5}, "dp": DP},
    "sample_dp": {"local": LOCAL | {"dp": {"noise_multiplier": 0.5, "max_grad_norm": 0.5}}},
    "moon": {"algorithm": "moon"},
}


@pytest.mark.parametrize("way", WAYS)
def test_training_has_the_bits_that_it_has_with_frozen_parameters_in_the_vector(way: str) -> None:
    apart, within = plan("Frozen", WAYS[way]), plan("Frozen", WAYS[way], whole=True)
    assert {slot.name for slot in apart.result.initial.constant_slots} == {"second.weight", "second.bias"}
    assert not within.result.initial.constant_slots
    assert len(apart.result.initial.vector) < len(within.result.initial.vector)
    expected = result(within, 1)
    for hosts in (1, 3):
        assert result(apart, hosts) == expected


@pytest.mark.parametrize("way", ["fedavg", "relay", "scaffold"])
def test_statistics_after_frozen_parameters_have_the_same_bits(way: str) -> None:
    local = {"local": LOCAL | {"drop_last": True}}
    assert result(plan("Normed", WAYS[way] | local)) == result(plan("Normed", WAYS[way] | local, whole=True))


@pytest.mark.parametrize("way", WAYS)
def test_a_frozen_part_that_nothing_uses_changes_no_bit(way: str) -> None:
    with_it, scores = result(plan("WithUnused", WAYS[way]))
    without = result(plan("TanhNet", WAYS[way]))
    assert ({name: value for name, value in with_it.items() if "unused" not in name}, scores) == without


def test_vectors_and_messages_leave_constants_out() -> None:
    job = plan("WithUnused", {})
    assert len(job.result.initial.vector) == len(plan("TanhNet", {}).result.initial.vector)
    assert len(job.result.initial.constants) >= 71 * 1000
    assert not len(job.without_data().initial_models[0].constants)


def test_constants_keep_their_type() -> None:
    job = plan("Half", {})
    before = flat_model(job.scenario, job.result).state_dict()
    after, _ = result(job)
    assert before["second.weight"].dtype == torch.bfloat16
    assert after["second.weight"] == before["second.weight"].view(torch.uint8).numpy().tobytes()
    assert after["first.weight"] != before["first.weight"].view(torch.uint8).numpy().tobytes()


def test_hosts_map_constants_that_processes_share() -> None:
    job = plan("WithUnused", {})
    initial = job.result.initial
    shared = torch.from_numpy(np.array(initial.constants)).clone().numpy()
    shared.setflags(write=False)
    workload = replace(job.result, initial=replace(initial, constants=shared))
    host = Host(0, replace(job, workloads=[workload]))
    assert host._residents[0].model.constants.memory.data_ptr() == shared.ctypes.data
    own = Host(0, job)._residents[0].model.constants.memory
    assert own.data_ptr() != initial.constants.ctypes.data
    frozen = host._residents[0].model.frozen_copy(host._residents[0].model.vector)
    assert frozen.module.get_parameter("unused.weight").data_ptr() == shared.ctypes.data


@pytest.mark.parametrize("network", ["Moves", "MovesUncounted", "Replaces"])
def test_a_constant_that_the_network_changes_is_refused_before_the_run(network: str) -> None:
    with pytest.raises(ScenarioError, match=r"model: 'second\.\w+' is frozen .* and so a constant, but the network or"):
        plan(network, {})


def test_a_constant_that_the_network_changes_later_ends_the_run_with_the_first_update() -> None:
    job = plan("MovesLater", {})
    before = job.result.initial.constants.tobytes()
    with pytest.raises(ClientError, match=r"client 9 .*: model: 'second\.weight' is frozen .*register_buffer"):
        run_on_hosts(job, 2)
    assert job.result.initial.constants.tobytes() == before


FREE, FROZEN = {"model": "tests.algorithms.scene:TanhNet"}, {"model": f"{HERE}:Frozen"}
CHAINS: dict[str, list[dict[str, Any]]] = {
    "trained, then frozen": [FREE, FROZEN],
    "frozen, then trained": [FROZEN, FREE],
    "frozen, trained and frozen": [FROZEN, FREE, FROZEN | {"schedule": "relay"}],
    "fresh head": [FROZEN, FROZEN | {"head": "fresh"}],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_phases_hand_over_what_one_of_them_freezes(chain: str) -> None:
    phases = [phase | {"rounds": 1} for phase in CHAINS[chain]]
    job = plan("TanhNet", *phases)
    assert result(job) == result(plan("TanhNet", *phases, whole=True))
    assert run_on_hosts(replace(job.without_data(), workloads=job.workloads), 1)[0] is not None


def test_constants_begin_with_the_weights_of_a_start(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    import rayfl
    from rayfl.models.flat import FlatModel

    source = FlatModel(copy.deepcopy(Frozen(3)), torch.device("cpu")).state_dict()
    save_file(source, tmp_path / "start.safetensors")
    made = tables(**TINY | {"model": {"name": f"{HERE}:Frozen"}, "phases": [FEDERATED | {"local": LOCAL, "rounds": 1}]})
    done = rayfl.run(made | {"start": {"file": str(tmp_path / "start.safetensors")}}, backend="inline", out=tmp_path)
    assert torch.equal(done.state_dict["second.weight"], source["second.weight"])
    assert not torch.equal(done.state_dict["first.weight"], source["first.weight"])
