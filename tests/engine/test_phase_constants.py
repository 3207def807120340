"""What a phase's `train` leaves out is constant while it lasts, and training has the bits that it has with all sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import rayfl
from rayfl.backends.inline import InlineBackend
from rayfl.engine.events import RoundDone
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.scheduler import Scheduler
from rayfl.engine.server import Server
from rayfl.engine.state.state_store import FolderStore, Stored
from rayfl.errors import ClientError, ScenarioError
from rayfl.models.tensors import Slot, constants_of, split
from tests.algorithms.scene import FIRST, INPUTS, SECOND, TanhNet
from tests.engine.scenes import FEDERATED, TINY, cast, run_on_hosts, snapshot_of, tables, without_clock
from tests.engine.test_constants import LOCAL, WAYS, plan, result, state_of

HERE = __name__
HEAD: dict[str, Any] = {"train": "head"}
SECOND_LAYER: dict[str, Any] = {"train": ["second"]}
BODY: dict[str, Any] = {"train": "body"}
LEFT_OUT = {"first.weight", "first.bias", "second.weight", "second.bias"}


class Normed(TanhNet):
    """With statistics in the part that trains and in the one that does not."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.first = nn.Sequential(nn.Linear(INPUTS, FIRST), nn.BatchNorm1d(FIRST))  # type: ignore[assignment]
        self.second = nn.Sequential(nn.Linear(FIRST, SECOND), nn.BatchNorm1d(SECOND))  # type: ignore[assignment]


class Followed(TanhNet):
    """With a copy of its first layer that follows it."""

    copies = {"target": "first"}  # noqa: RUF012

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.target = nn.Linear(INPUTS, FIRST).requires_grad_(False)


class Moves(TanhNet):
    """Moves a weight of its first layer in forward, but not in the small batches of the trial."""

    def __init__(self, num_classes: int, at_least: int = 0) -> None:
        super().__init__(num_classes)
        self.at_least = at_least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and len(x) >= self.at_least:
            with torch.no_grad():
                self.first.weight.lerp_(torch.ones_like(self.first.weight), 0.1)
        return super().forward(x)


def names(job: RunPlan, phase: int) -> set[str]:
    return {slot.name for slot in job.workloads[phase].initial.constant_slots}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("train", [HEAD, SECOND_LAYER], ids=["head", "second"])
def test_training_a_part_has_the_bits_that_it_has_with_everything_in_the_vector(
    way: str, train: dict[str, Any]
) -> None:
    phase = WAYS[way] | train
    apart, within = plan("TanhNet", phase), plan("TanhNet", phase, whole=True)
    assert names(apart, 0) == (LEFT_OUT if train is HEAD else {*LEFT_OUT, "read_out.weight", "read_out.bias"} - {
        "second.weight", "second.bias"
    })  # fmt: skip
    assert not names(within, 0)
    assert len(apart.result.initial.vector) < len(within.result.initial.vector)
    expected = result(within, 1)
    for hosts in (1, 3):
        assert result(apart, hosts) == expected


CHAINS: dict[str, list[dict[str, Any]]] = {
    "all, then the head": [{}, HEAD],
    "the head, then all": [HEAD, {}],
    "parts, one after the other": [HEAD, SECOND_LAYER | {"algorithm": "scaffold"}, BODY | {"schedule": "relay"}],
    "a relay, then the head in a relay": [{"schedule": "relay"}, HEAD | {"schedule": "relay"}],
    "the head twice": [{}, HEAD, HEAD | {"algorithm": "ditto"}, {}, HEAD],
    "a fresh head that does not train": [{}, SECOND_LAYER | {"head": "fresh"}, HEAD],
    "a network that freezes what was trained": [{}, {"model": "tests.engine.test_constants:Frozen"} | HEAD],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_phases_hand_over_what_the_next_ones_leave_out(chain: str) -> None:
    phases = [phase | {"rounds": 2} for phase in CHAINS[chain]]
    expected = result(plan("TanhNet", *phases, whole=True), 1)
    job = plan("TanhNet", *phases)
    for hosts in (1, 2, 3):
        assert result(job, hosts) == expected


@pytest.mark.parametrize("phases", [[HEAD], [{}, HEAD], [SECOND_LAYER, BODY]], ids=str)
def test_statistics_beside_constants_have_the_same_bits(phases: list[dict[str, Any]]) -> None:
    local = {"local": LOCAL | {"drop_last": True}}
    jobs = [plan(f"{HERE}:Normed", *(phase | local for phase in phases), whole=whole) for whole in (False, True)]
    assert result(jobs[0]) == result(jobs[1])


def test_models_of_a_phase_bring_its_constants_along_only_where_an_earlier_phase_trained_them() -> None:
    job = plan("TanhNet", HEAD, {}, HEAD)
    assert job.late_constants == [frozenset(), frozenset(), frozenset(LEFT_OUT)]
    assert not len(job.workloads[2].initial.constants), "initial values that nothing reads"
    scheduler, server = cast(job, 1)
    brought = []
    for event in scheduler.run():
        if isinstance(event, RoundDone):
            model = server.committed()[1]
            brought.append(constants_of(model) is not None)
            assert len(split(model)[0]) == len(job.workloads[(event.round - 1) // 3].initial.vector)
    assert brought == [False] * 6 + [True] * 3


def test_hosts_compute_with_the_array_that_the_server_has_shared() -> None:
    shared: list[np.ndarray] = []

    def share(constants: np.ndarray) -> np.ndarray:
        aligned = torch.from_numpy(constants).clone().numpy()
        aligned.setflags(write=False)
        shared.append(aligned)
        return aligned

    job = plan("TanhNet", {"schedule": "relay"}, HEAD, HEAD | {"schedule": "relay"})
    hosts = [Host(0, job), Host(1, job)]
    list(Scheduler(job, InlineBackend(hosts, Server(job, share))).run())
    assert len(shared) == 1
    for host in hosts:
        assert host._residents[2].model.constants.memory.data_ptr() == shared[0].ctypes.data


class CountingStore(FolderStore):
    """Counts how often constants are written."""

    written = 0

    def write(self, arrays: Mapping[str, np.ndarray]) -> Stored:
        self.written += "constants" in arrays
        return super().write(arrays)


def test_a_run_goes_on_after_any_round_with_the_same_bits(tmp_path: Path) -> None:
    chain: list[dict[str, Any]] = [{}, HEAD, SECOND_LAYER | {"schedule": "relay"}, {"schedule": "relay"}, HEAD]
    job = plan("TanhNet", *(phase | {"rounds": 2} for phase in chain), evaluation={"every": 3})
    scheduler, server = cast(job, 2)
    store, events, snapshots = CountingStore(tmp_path), [], []
    for event in scheduler.run():
        events.append(event)
        if isinstance(event, RoundDone):
            snapshots.append((len(events), snapshot_of(scheduler, store)))
    assert store.written == 3, "once in each phase that begins with trained constants"
    expected = state_of(job, *server.committed())
    for done, snapshot in snapshots:
        again, other = cast(job, 3)
        again.restore(snapshot, store)
        rest = without_clock(list(again.run()))
        missing = [event for event in without_clock(events[:done]) if event not in rest]
        assert [*missing, *rest] == without_clock(events) or rest == without_clock(events[done:])
        assert state_of(job, *other.committed()) == expected


@pytest.mark.parametrize("train", ["all", "head", ("second",)])
def test_what_clients_personalise_in_evaluations_is_no_constant(train: Any) -> None:
    evaluation = {"every": 1, "personalize": {"steps": 2, "batch_size": 4, "lr": 0.3, "train": train}}
    job, whole = (plan("TanhNet", {}, HEAD, evaluation=evaluation, whole=whole) for whole in (False, True))
    kept = {"all": LEFT_OUT, "head": set[str](), ("second",): {"second.weight", "second.bias"}}[train]
    assert names(job, 1) == LEFT_OUT - kept
    assert result(job) == result(whole)


def test_what_an_algorithm_leaves_out_is_no_constant() -> None:
    assert not names(plan("TanhNet", {"algorithm": "fedbabu"}), 0)
    unfrozen = plan("TanhNet", {"local": LOCAL | {"unfreeze": {"share": 0.5}}})
    assert not names(unfrozen, 0)


def test_what_follows_another_module_is_no_constant() -> None:
    assert names(plan(f"{HERE}:Followed", HEAD), 0) == LEFT_OUT


def test_a_left_out_parameter_that_the_network_changes_is_no_constant() -> None:
    job = plan(f"{HERE}:Moves", HEAD)
    assert names(job, 0) == LEFT_OUT - {"first.weight"}
    assert result(job) == result(plan(f"{HERE}:Moves", HEAD, whole=True))


def test_a_left_out_parameter_that_the_network_changes_later_ends_the_run_with_the_first_update() -> None:
    job = plan("TanhNet", HEAD, model={"name": f"{HERE}:Moves", "at_least": 3})
    with pytest.raises(ClientError, match=r"client 9 .*: model: 'first\.weight' is frozen"):
        run_on_hosts(job, 2)


def test_a_frozen_type_that_cannot_hold_what_was_trained_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"phases\.p1\.model: frozen parameter 'second\.weight' is torch\.bfloat16"):
        plan("TanhNet", {}, {"model": "tests.engine.test_constants:Half"})


def test_a_slot_rounds_to_bfloat16_as_pytorch_does() -> None:
    drawn = 3 * torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    values = torch.cat([drawn, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1.00390625, 1.01171875, 3.4e38])])
    slot, memory = Slot("w", 0, (len(values),), (1,), False, dtype="bfloat16"), np.zeros(len(values), np.float32)
    slot.write(memory, values.numpy())
    expected, written = values.to(torch.bfloat16), slot.view(torch.from_numpy(memory))
    assert torch.equal(written.view(torch.int16), expected.view(torch.int16))
    slot.write(memory, np.full(len(values), np.nan, np.float32))
    assert written.isnan().all()


@pytest.mark.parametrize("phases", [[HEAD], [{}, HEAD], [{}, HEAD, BODY]], ids=str)
def test_exported_models_are_whole(phases: list[dict[str, Any]], tmp_path: Path) -> None:
    made = [FEDERATED | {"local": LOCAL} | phase | {"name": f"p{n}", "rounds": 1} for n, phase in enumerate(phases)]
    done = rayfl.run(tables(**TINY | {"phases": made}), backend="inline", out=tmp_path)
    assert set(done.state_dict) == {*LEFT_OUT, "read_out.weight", "read_out.bias"}
    parts = [plan("TanhNet", *(phase | {"rounds": 1} for phase in phases[: n + 1])) for n in range(len(phases))]
    for number, job in enumerate(parts):
        expected, _ = result(job)
        (file,) = tmp_path.rglob("model.safetensors" if job is parts[-1] else f"phase_{number + 1}_*.safetensors")
        assert {name: value.numpy().tobytes() for name, value in load_file(file).items()} == expected
