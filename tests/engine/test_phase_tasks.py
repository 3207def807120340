"""Phases with their own task and network: what they take over, how they are scored, what the run leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file

import rayfl
from rayfl.config import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.engine.events import Evaluated
from rayfl.engine.host import Host
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import DataError, ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.archive import GridPlace
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve
from rayfl.studies.grid.results import FinishedRun
from tests.algorithms.scene import TanhNet
from tests.callbacks.scene import StopAt
from tests.engine.phase_tasks import FINETUNE, HERE, PRETRAIN, tables
from tests.engine.scenes import continued, defined, run_on_hosts, snapshot_after, without_clock

QUIET = Console(quiet=True)
STILL = {"epochs": 1, "batch_size": 16, "lr": 1e-30}
"""Trains so little that no weight changes."""

HEAD = ("read_out.weight", "read_out.bias")


def made(phases: Sequence[Mapping[str, Any]], **changes: Any) -> tuple[RunPlan, FlatModel]:
    return prepare(Scenario.from_tables(tables(phases=phases, **changes)), Path("no-data-here"))


def ran(phases: Sequence[Mapping[str, Any]], **changes: Any) -> dict[str, torch.Tensor]:
    """The final model by name."""
    job, model = made(phases, **changes)
    vector, _ = run_on_hosts(job, 1)
    return {name: tensor.clone() for name, tensor in model.state_dict(torch.from_numpy(vector)).items()}


def own(phase: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario of one phase that learns what the phase does."""
    rest = {key: value for key, value in phase.items() if key not in ("task", "metrics")}
    return {"phases": [rest], "task": phase["task"]}


@pytest.mark.parametrize("schedule", ["parallel", "relay", "central"])
def test_the_body_passes_to_the_next_task_bit_for_bit_and_the_head_is_fresh(schedule: str) -> None:
    before = ran(**own(PRETRAIN))
    _, untrained = made([FINETUNE])
    following: dict[str, Any] = {"name": "still", "schedule": schedule, "rounds": 1, "cohort": 3, "local": STILL}
    if schedule == "central":
        del following["cohort"]
    after = ran([PRETRAIN, following])
    initial = untrained.state_dict()
    assert before["read_out.weight"].shape != after["read_out.weight"].shape
    for name, tensor in after.items():
        assert torch.equal(tensor, initial[name] if name in HEAD else before[name]), name
    assert not torch.equal(after["first.weight"], initial["first.weight"])


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_weights_pass_by_name_to_a_network_that_lays_them_out_in_another_order(schedule: str) -> None:
    before = ran([FINETUNE])
    other = {"schedule": schedule, "model": f"{__name__}:Backwards"}
    phases = [FINETUNE, {"name": "still", "rounds": 1, "cohort": 3, "local": STILL, **other}]
    first, second = made(phases)[0].workloads
    assert [slot.name for slot in second.initial.layout] != [slot.name for slot in first.initial.layout]
    after = ran(phases)
    assert all(torch.equal(after[name], before[name]) for name in before)


class Backwards(TanhNet):
    """Its layers are declared from the last to the first."""

    ordered_modules = TanhNet.ordered_modules[::-1]

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self._modules = dict(reversed(self._modules.items()))


def test_a_head_of_the_same_shape_is_fresh_for_another_task_unless_it_is_to_be_kept() -> None:
    """Whether there happen to be as many classes as places to roll by must not matter."""
    smoothed = {"name": "classification", "label_smoothing": 0.1}
    first = {**FINETUNE, "name": "first", "task": smoothed}
    still = {"name": "still", "rounds": 1, "cohort": 3, "local": STILL}
    before = ran([{**FINETUNE, "name": "first"}], task=smoothed)
    initial = made([FINETUNE])[1].state_dict()
    other = {**still, "task": f"{__name__}:Renamed"}
    for phase, fresh in (
        (still, False),
        ({**still, "head": "fresh"}, True),
        (other, True),
        ({**other, "head": "keep"}, False),
    ):
        after = ran([first, phase])
        for name, tensor in after.items():
            assert torch.equal(tensor, initial[name] if fresh and name in HEAD else before[name]), (phase, name)


class Renamed(rayfl.tasks.Classification):
    """Classification by another name."""

    name: str = "renamed"


def test_the_head_can_be_fresh_between_phases_that_learn_the_same() -> None:
    before, initial = ran([FINETUNE]), made([FINETUNE])[1].state_dict()
    after = ran([FINETUNE, {"name": "still", "rounds": 1, "cohort": 3, "local": STILL, "head": "fresh"}])
    assert all(torch.equal(after[name], initial[name] if name in HEAD else before[name]) for name in after)


def test_it_gives_the_same_bits_and_scores_on_any_number_of_hosts() -> None:
    job, _ = made([PRETRAIN, FINETUNE])
    model, events = run_on_hosts(job, 1)
    other, told = run_on_hosts(job, 3)
    assert np.array_equal(other, model)
    assert without_clock(told) == without_clock(events)


@pytest.mark.parametrize(
    ("algorithm", "stop"),
    [
        ("scaffold", 2),
        ("scaffold", 3),
        ("scaffold", 4),
        ("ditto", 3),
        ({"name": "fedavg", "server_optimizer": "adam"}, 3),
    ],
)
def test_it_goes_on_from_a_snapshot_on_either_side_of_the_border(algorithm: Any, stop: int) -> None:
    """State of a phase, which is laid out as its model, is gone in the next one: clients' before, at and after the
    border; personal models and the server's own at it.
    """
    job, _ = made([{**PRETRAIN, "algorithm": algorithm}, {**FINETUNE, "algorithm": algorithm}])
    whole, _ = run_on_hosts(job, 1)
    model, _ = continued(job, *snapshot_after(job, stop, 2), hosts=3)
    assert np.array_equal(model, whole)


def test_each_phase_is_scored_by_its_own_metrics() -> None:
    _, events = run_on_hosts(made([PRETRAIN, {**FINETUNE, "task": f"{HERE}:Rolled", "name": "more"}, FINETUNE])[0], 2)
    columns = {event.phase: sorted(event.scores) for event in events if isinstance(event, Evaluated)}
    assert columns == {
        "pretrain": ["test_guessed", "test_loss"],
        "more": ["test_loss"],
        "finetune": ["test_accuracy", "test_loss"],
    }


@pytest.mark.slow
def test_pretraining_teaches_its_task() -> None:
    long = {**PRETRAIN, "rounds": 30, "cohort": 12}
    _, events = run_on_hosts(made([long])[0], 1)
    scores = [defined(event.scores["test_guessed"]) for event in events if isinstance(event, Evaluated)]
    assert scores[-1] > max(scores[0], 0.25) + 0.02


def test_the_records_say_what_each_phase_learned_and_took_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = rayfl.run(tables(), backend="inline", folder=tmp_path / "run", console=Console(width=200))
    printed = capsys.readouterr().out
    assert "phase    pretrain: 3 rounds, parallel, fedavg, task tests.engine.phase_tasks:Rolled" in printed
    assert (
        "from the previous phase: 4 tensors taken, 2 fresh ('read_out.bias', 'read_out.weight'), 2 not used "
        "('read_out.bias', 'read_out.weight')"
    ) in printed
    facts = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert facts["headline"]["phases"] == ["finetune"]
    assert [phase["task"]["outputs"] for phase in facts["phases"]] == [4, 3]
    assert facts["phases"][0]["handover"] is None
    assert facts["phases"][1]["handover"]["fresh"] == list(HEAD)
    rows = result.metrics.to_pylist()
    assert [row["test_accuracy"] is None for row in rows] == [True] * 3 + [False] * 2
    assert [row["test_guessed"] is None for row in rows] == [False] * 3 + [True] * 2
    assert load_file(tmp_path / "run" / "model.safetensors")["read_out.weight"].shape[0] == 3
    found = FinishedRun.read(GridPlace("grid", "row", "column", 0), tmp_path / "run")
    accuracies = [row["test_accuracy"] for row in rows[3:]]
    assert found.best == 100 * max(accuracies)
    assert found.mean_last_5 == pytest.approx(50 * sum(accuracies))


def test_a_resolved_scenario_can_be_run_again_with_the_same_bits(tmp_path: Path) -> None:
    first = rayfl.run(tables(), backend="inline", folder=tmp_path / "run", console=QUIET)
    again = rayfl.run(tmp_path / "run" / "scenario.toml", backend="inline", out=tmp_path, console=QUIET)
    assert again.scenario == first.scenario
    assert all(torch.equal(first.state_dict[name], again.state_dict[name]) for name in first.state_dict)
    assert resolve(load_scenario(tables())).to_toml() == first.scenario.to_toml()


def test_a_run_that_ends_in_an_earlier_phase_leaves_that_phases_model(tmp_path: Path) -> None:
    ended = rayfl.run(tables(), backend="inline", out=tmp_path, callbacks=[StopAt(round=2)], console=QUIET)
    alone = rayfl.run(tables(**own({**PRETRAIN, "rounds": 2})), backend="inline", out=tmp_path, console=QUIET)
    assert ended.state_dict["read_out.weight"].shape[0] == 4
    assert all(torch.equal(ended.state_dict[name], alone.state_dict[name]) for name in alone.state_dict)


def test_callbacks_rank_the_rounds_of_the_last_phases_task(tmp_path: Path) -> None:
    """The losses of two tasks cannot be compared; the first phase ends with the lower one."""
    chosen = [
        {"name": "early_stopping", "metric": "test_loss", "patience": 1, "min_delta": 100.0},
        {"name": "best_model", "metric": "test_loss"},
    ]
    result = rayfl.run(tables(callbacks=chosen), backend="inline", out=tmp_path, console=QUIET)
    assert result.metrics["phase"].to_pylist() == ["pretrain"] * 3 + ["finetune"] * 2
    (best,) = result.directory.glob("*best*.safetensors")
    assert load_file(best)["read_out.weight"].shape[0] == 3

    of_first = [{"name": "best_model", "phase": "pretrain"}]
    result = rayfl.run(tables(callbacks=of_first), backend="inline", out=tmp_path, console=QUIET)
    (best,) = result.directory.glob("*best*.safetensors")
    assert load_file(best)["read_out.weight"].shape[0] == 4


def test_a_start_is_for_the_first_phases_model(tmp_path: Path) -> None:
    first = rayfl.run(tables(**own(PRETRAIN)), backend="inline", out=tmp_path, console=QUIET)
    more = tables(phases=[PRETRAIN, {**FINETUNE, "local": STILL}], start={"run": str(first.directory)})
    started = rayfl.run(more, backend="inline", out=tmp_path, console=QUIET)
    plain = rayfl.run(more | {"start": None}, backend="inline", out=tmp_path, console=QUIET)
    assert torch.equal(started.state_dict["read_out.weight"], plain.state_dict["read_out.weight"])
    assert not torch.equal(started.state_dict["first.weight"], plain.state_dict["first.weight"])


def test_the_centralised_counterpart_has_a_phase_for_each_task(tmp_path: Path) -> None:
    twice = tables(phases=[PRETRAIN, FINETUNE, {**FINETUNE, "name": "longer"}])
    result = rayfl.run(twice, backend="inline", out=tmp_path, centralise=True, console=QUIET)
    assert [phase.name for phase in result.scenario.phases] == ["central_pretrain", "central_longer"]
    assert result.scenario.phases[0].task == resolve(load_scenario(twice)).phases[0].task
    assert set(result.metrics["phase"].to_pylist()) == {"central_pretrain", "central_longer"}


def test_clients_are_hidden_in_phases_of_different_networks() -> None:
    hidden = {"level": "central", "noise_multiplier": 1.0, "clip_norm": 0.5, "delta": 0.01}
    alike = {"algorithm": {"name": "fedavg", "weighting": "uniform"}, "dp": hidden}
    job, _ = made([{**PRETRAIN, **alike}, {**FINETUNE, **alike}])
    spans = [plan.hiding.changing for plan in job.phases if plan.hiding]
    lengths = [sum(stop - start for start, stop in places) for places in spans]
    assert lengths[0] - lengths[1] == 6  # a row of five weights, and a bias, less
    assert np.array_equal(run_on_hosts(job, 1)[0], run_on_hosts(job, 3)[0])


def test_workloads_share_what_of_a_gpus_memory_may_hold_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def recorded(store: ShardStore, device: torch.device, cache_bytes: int, ignored: int | None) -> BatchSource:
        given.append(cache_bytes)
        return BatchSource(store, device, cache_bytes, ignored)

    job, _ = made([PRETRAIN, FINETUNE, {**FINETUNE, "name": "longer"}])
    monkeypatch.setattr("rayfl.engine.resident.BatchSource", recorded)
    Host(0, job)
    cache_bytes = job.scenario.resources.device_cache_bytes
    assert given == [cache_bytes], "the same samples once"
    given.clear()
    first, *others = job.workloads
    Host(0, replace(job, workloads=[replace(first, store=replace(first.store)), *others]))
    assert given == [cache_bytes // 2] * 2


@pytest.mark.parametrize(
    ("phases", "changes", "complaint"),
    [
        (
            [{**PRETRAIN, "head": "fresh"}, FINETUNE],
            {"start": {"file": "any.safetensors"}},
            r"phases\.pretrain\.head: is about the weights of the previous phase, .* use start\.head",
        ),
        (
            [PRETRAIN, {**FINETUNE, "model": f"{HERE}:Stranger"}],
            {},
            r"phases\.finetune\.model: takes over no weights .*: its own are 'only\.bias', .* none match in name",
        ),
        (
            [{**FINETUNE, "name": "first"}, {**FINETUNE, "head": "fresh"}],
            {"model": f"{HERE}:Stranger"},
            r"phases\.finetune\.head: 'fresh' needs a model that declares its head",
        ),
        ([{**PRETRAIN, "task": "rotation"}, FINETUNE], {}, r"phases\.pretrain\.task: unknown task 'rotation'"),
        ([{**PRETRAIN, "task": {"label_smoothing": 0.1}}, FINETUNE], {}, r"phases\.pretrain\.task\.name: is missing"),
        (
            [{**PRETRAIN, "task": {"name": "classification", "smooth": 1}}, FINETUNE],
            {},
            r"phases\.pretrain\.task: smooth: unknown key",
        ),
        ([PRETRAIN, {**FINETUNE, "model": "lenet6"}], {}, "unknown model 'lenet6'"),
        (
            [PRETRAIN, {**FINETUNE, "model": {"name": "mlp", "width": 3}}],
            {},
            r"phases\.finetune\.model\.width: .*not an option",
        ),
        (
            [{**PRETRAIN, "metrics": ["accuracy"]}, FINETUNE],
            {},
            r"phases\.pretrain\.metrics\.0: metric 'accuracy' with",
        ),
        (
            [{**PRETRAIN, "metrics": [f"{HERE}:Undirected"]}, FINETUNE],
            {},
            rf'phases\.pretrain\.metrics: \'Undirected\' ranks .*name = "{HERE}:Undirected", higher_is_better = true',
        ),
        (
            [PRETRAIN, FINETUNE],
            {"evaluation": {"over_clients": ["pooled_mean"]}},
            r"evaluation\.over_clients: 'pooled_mean' needs accuracy as the headline metric, .* 'guessed' of task",
        ),
        (
            [{**PRETRAIN, "local": {"dp": {"noise_multiplier": 1, "max_grad_norm": 1, "delta": 1e-3}}}, FINETUNE],
            {},
            r"phases\.pretrain\.local\.dp: task '.*Rolled' has no per-sample losses",
        ),
        (
            [{**PRETRAIN, "algorithm": "qfedavg"}, FINETUNE],
            {},
            r"phase 'pretrain' \(qfedavg\) requests losses and gradients, which leave out the .* that task '.*Rolled'",
        ),
    ],
)
def test_errors_name_the_key_that_does_not_fit(
    phases: list[dict[str, Any]], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        made(phases, **changes)


def test_labels_that_a_phases_task_lacks_are_told_by_its_key() -> None:
    with pytest.raises(DataError, match=r"phases\.pretrain\.task: needs boxes; the data has int64 labels"):
        made([{**PRETRAIN, "task": f"{HERE}:Picky", "metrics": []}, FINETUNE])
