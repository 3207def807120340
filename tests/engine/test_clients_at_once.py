"""Updates of a group of clients side by side: the same numbers as one by one, and each failure told with its client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.backends.inline import InlineBackend
from rayfl.config.scenario import Scenario
from rayfl.engine.assignment import BUCKETS, HOMES, most_hosts
from rayfl.engine.events import RoundDone
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.engine.executors.private import Private
from rayfl.engine.executors.stacked import Stacked
from rayfl.engine.plan.phase_plan import plan_phases
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.slices import Slices
from rayfl.engine.plan.workload import Population
from rayfl.engine.scheduler import Scheduler
from rayfl.errors import ClientError, ResourceError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.queries import DataView, Gradient, Loss
from rayfl.local.requests import Affine, ClientUpdate, LocalTraining
from rayfl.models.network import Network
from rayfl.runs.preparation import prepare
from tests.engine.scenes import FEDERATED, prepared, run_on_hosts, tables, without_clock
from tests.engine.unequal_images import COHORT
from tests.local.bench import Bench

LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.1}
MLP = {"name": "mlp", "hidden": [8]}


def images(at_once: int, model: Mapping[str, Any], local: Mapping[str, Any] = LOCAL, **phase: Any) -> RunPlan:
    """Two rounds of a cohort in which several clients share a bucket."""
    cohort = {"explicit": [list(COHORT)]}
    return prepared(
        data={"name": "tests.engine.unequal_images:load"},
        model=model,
        phases=[{"name": "federated", "rounds": 2, "cohort": cohort, "local": local} | phase],
        evaluation={"every": 2},
        numerics={"clients_at_once": at_once},
    )


class DroppingOut(Network):
    """Draws from PyTorch's generator in every training step."""

    ordered_modules = ("first", "last")
    feature_layer = "last"

    def __init__(self, num_classes: int, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(256, 8), nn.Dropout(0.3), nn.Linear(8, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.drop(torch.relu(self.first(x.flatten(1)))))
        return result


class Drawing(FedAvg):
    """Draws from PyTorch's generator between its requests, of which odd clients make more."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        drawn = [torch.rand(3)]
        if client.id % 2:
            yield Gradient(model)
            drawn.append(torch.rand(3))
        trained = yield LocalTraining(model)
        drawn.append(torch.rand(3))
        again = yield LocalTraining(trained)
        drawn.append(torch.rand(3))
        client.report(drawn=float(torch.cat(drawn).sum()))
        # the first result is still the client's own, whoever trained since
        return Answer(1.0, delta=again - model, kept=trained - model, drawn=torch.cat(drawn)[-6:])


@pytest.mark.parametrize("algorithm", [f"{__name__}:Drawing", "ditto"])
def test_unstacked_training_has_the_same_bits_in_groups_of_any_size_on_any_number_of_hosts(algorithm: str) -> None:
    """Of an algorithm that draws between its requests, and of one that trains two models and keeps one."""
    model = {"name": f"{__name__}:DroppingOut"}
    expected, events = run_on_hosts(images(1, model, algorithm=algorithm), 1)
    for at_once, hosts in ((3, 1), (8, 2)):
        found, seen = run_on_hosts(images(at_once, model, algorithm=algorithm), hosts)
        assert np.array_equal(found, expected)
        assert without_clock(seen) == without_clock(events)


def test_random_draws_of_an_algorithm_are_the_same_beside_stacked_training() -> None:
    drawn = []
    for at_once in (1, 3):
        _, events = run_on_hosts(images(at_once, MLP, algorithm=f"{__name__}:Drawing"), 1)
        drawn.append([event.client_scalars for event in events if isinstance(event, RoundDone)])
    assert drawn[0] == drawn[1]
    assert len({scalars.values["drawn"] for scalars in drawn[0][0]}) == len(COHORT)


@dataclass(frozen=True)
class Curvature:
    """A request that rayfl does not know."""

    at: torch.Tensor


class Bending(FedAvg):
    """Asks for it."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return ()

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        yield Curvature(model)  # type: ignore[misc]
        return Answer(1.0, delta=model)


def test_an_unknown_request_is_never_carried_out_unnoised() -> None:
    local = {"steps": 2, "batch_size": 8, "dp": {"noise_multiplier": 1.1, "max_grad_norm": 0.7, "accountant": "rdp"}}
    made = prepared(phases=[FEDERATED | {"algorithm": f"{__name__}:Bending", "local": local}])
    said = r"local\.dp: its client update yielded a Curvature, which rayfl cannot clip, noise and account for"
    with pytest.raises(ClientError, match=said):
        run_on_hosts(made, 1)


def test_neither_executor_takes_the_other_ones_clients() -> None:
    bench = Bench(model=MLP)
    plain = bench.client(3, LOCAL)
    private = bench.client(3, LOCAL | {"dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0}})
    parts: Any = bench.model, None, bench.task, None
    request = LocalTraining(bench.initial)
    for executor, takes in ((OneByOne(*parts), plain), (Stacked(*parts), plain), (Private(*parts), private)):
        assert executor.accepts(takes, request)
        assert not executor.accepts(private if takes is plain else plain, request)


OUTSIDE = DataView(np.array([10**6]))


def test_of_the_requests_that_fail_at_once_the_first_of_the_group_is_told() -> None:
    bench = Bench()

    def update(client: ClientContext) -> ClientUpdate[None]:
        yield Loss(bench.initial)
        if client.id == 7:
            raise RuntimeError("the last of the group")
        yield Loss(bench.initial, OUTSIDE if client.id in (5, 6) else None)

    group = [bench.client(number, LOCAL) for number in (2, 6, 5, 7)]
    with pytest.raises(ClientError, match=r"^client 6 on worker 0") as caught:
        bench.run_together(group, update)
    assert "out of bounds" in caught.value.detail


def test_a_client_whose_training_diverges_is_told_from_those_beside_it() -> None:
    bench = Bench(Stacked, model=MLP)

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        terms = (Affine(quadratic=1e30),) if client.id == 6 else ()
        trained: torch.Tensor = yield LocalTraining(bench.initial, gradient=terms)
        return trained

    with pytest.raises(ClientError, match=r"^client 6 on worker 0.*training diverged") as caught:
        bench.run_together([bench.client(number, LOCAL) for number in (2, 6)], update)
    assert caught.value.diverged


class Meddling(FedAvg):
    """The last client of the group changes what all were sent, before any of them is done."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        if client.id == COHORT[-1]:
            model.add_(1.0)
        return (yield from super().client_update(client, model))


def test_the_client_that_changes_a_shared_message_is_told_from_its_neighbours() -> None:
    with pytest.raises(ClientError, match=f"^client {COHORT[-1]} .*modified a vector that was sent to all"):
        run_on_hosts(images(8, MLP, algorithm=f"{__name__}:Meddling"), 1)


class Undecided(nn.Module):
    """Looks at values, which a computation for many clients at once cannot."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(256, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(x.flatten(1))
        return logits if logits.sum() > 0 else 2 * logits


class Centred(Network):
    """Subtracts the mean of the batch, so that a sample's outputs depend on the others."""

    ordered_modules = ("last",)
    feature_layer = "last"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(256, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(1)
        logits: torch.Tensor = self.last(rows - rows.mean(dim=0))
        return logits


def test_collated_batches_are_never_stacked() -> None:
    with pytest.raises(
        ScenarioError, match=r"^numerics\.clients_at_once: 3 has no effect, since batches of data\.collate = 'pad'"
    ):
        prepared(
            data={"name": "tests.engine.unequal_images:load", "collate": "pad"}, numerics={"clients_at_once": 3},
            model=MLP, phases=[{"name": "federated", "rounds": 1, "cohort": 2, "local": LOCAL}],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("network", "why"),
    [("Undecided", "data-dependent control flow"), ("Centred", "depends on the other samples of its batch")],
)
def test_a_network_that_cannot_be_stacked_names_the_clients_and_the_key(network: str, why: str) -> None:
    model = {"name": f"{__name__}:{network}"}
    run_on_hosts(images(1, model), 1)
    with pytest.raises(
        ClientError, match=r"^clients \d+, \d+, \d+ on worker 0, .*set numerics\.clients_at_once=1"
    ) as caught:
        run_on_hosts(images(3, model), 1)
    assert why in caught.value.detail


def test_too_little_memory_for_a_group_names_the_clients_and_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr("rayfl.engine.executors.stacked.functional_call", exhausted)
    said = r"^clients \d+, \d+, \d+ trained at once on worker 0: the GPU ran .*; or lower numerics\.clients_at_once$"
    with pytest.raises(ResourceError, match=said):
        run_on_hosts(images(3, MLP), 1)


def test_more_hosts_than_there_are_buckets_for_client_state_are_rejected() -> None:
    def scenario(hosts: int, algorithm: str, at_once: int) -> Scenario:
        changes = {"resources": {"hosts": hosts}, "numerics": {"clients_at_once": at_once}}
        return Scenario.from_tables(tables(phases=[FEDERATED | {"algorithm": algorithm}], **changes))

    prepare(scenario(BUCKETS, "scaffold", 2), Path())
    prepare(scenario(BUCKETS + 1, "scaffold", 1), Path())
    prepare(scenario(HOMES + 1, "fedavg", 1), Path())
    said = r"^resources\.hosts: 65 is too many .*keep state, 2 of which train at once, can .*; set resources\.hosts=64$"
    with pytest.raises(ScenarioError, match=said):
        prepare(scenario(BUCKETS + 1, "scaffold", 2), Path())
    with pytest.raises(ScenarioError, match=r"^resources\.hosts: 4097 is too many .*; set resources\.hosts=4096$"):
        prepare(scenario(HOMES + 1, "scaffold", 1), Path())
    hosts: Any = [None] * (BUCKETS + 1)
    server: Any = None
    stacked = prepared(phases=[FEDERATED | {"algorithm": "scaffold"}], numerics={"clients_at_once": 2})
    with pytest.raises(ResourceError, match=r"^65 workers are too many: .* at most 64; set resources\.hosts=64$"):
        Scheduler(stacked, InlineBackend(hosts, server))
    many = Population(np.ones(5000, np.int64), Slices.of(()))
    for algorithm, at_once, most in (("scaffold", 2, BUCKETS), ("scaffold", 1, HOMES), ("fedavg", 2, 5000)):
        (plan,) = plan_phases(scenario(1, algorithm, at_once))
        assert most_hosts([plan.with_facts(population=many)], at_once) == most
