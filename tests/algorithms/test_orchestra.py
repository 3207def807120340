"""Orchestra beside plain PyTorch: a round of set-up and two of training, clusterings at clients and server included."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from rayfl.algorithms.orchestra import sinkhorn
from rayfl.engine.events import RoundDone
from rayfl.engine.initial_model import flat_model
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ScenarioError
from rayfl.local.context import ClientStreams
from tests.engine.scenes import prepared, run_on_hosts
from tests.views_scene import VIEWS, views

CLIENTS, EACH, BATCH, EPOCHS, LR, MOMENTUM, DECAY = 2, 12, 4, 2, 0.05, 0.9, 1e-3
MEMORY, LOCAL_CLUSTERS, CLUSTERS, WIDTH = 10, 3, 5, 4
SEED = 7


def images() -> Any:
    from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards

    rng, total = np.random.default_rng(5), CLIENTS * EACH
    train, test = (
        Samples(rng.integers(256, size=(n, 4, 4, 1), dtype=np.uint8), np.arange(n, dtype=np.int64) % 3)
        for n in (total, 8)
    )
    owner = np.repeat(np.arange(CLIENTS), EACH)
    shards = NaturalClients(tuple(f"c{i}" for i in range(CLIENTS)), Shards.by_owner(owner, CLIENTS), None)
    return Dataset("images", train, test, 3, Provenance("arrays", "numbers"), shards)


def job(rounds: int = 3, **changes: Any) -> RunPlan:
    local = {"batch_size": BATCH, "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY, "epochs": EPOCHS}
    task = {"name": "orchestra", "memory": MEMORY, "momentum": 0.9, "temperature": 0.5}
    algorithm = {"name": "orchestra", "local_clusters": LOCAL_CLUSTERS, "temperature": 0.5}
    phase = {
        "name": "p",
        "rounds": rounds,
        "cohort": CLIENTS,
        "algorithm": algorithm | changes.pop("algorithm", {}),
        "local": local | {"drop_last": True} | changes.pop("local", {}),
        **changes.pop("phase", {}),
    }
    return prepared(
        seed=SEED,
        data={"name": f"{__name__}:images", "partition": "natural", "views": VIEWS},
        model={"name": "orchestra", "network": "tests.views_scene:Encoder", "width": WIDTH, "clusters": CLUSTERS},
        task=task | changes.pop("task", {}),
        phases=[phase],
        evaluation={"every": 100},
        **changes,
    )


class Client:
    """One client of the plain computation."""

    def __init__(self, number: int, x: torch.Tensor, stateful: bool) -> None:
        self.number, self.x, self.stateful = number, x, stateful
        self.memory: torch.Tensor | None = None
        self.target: dict[str, torch.Tensor] | None = None

    def update(self, server: nn.Module, round: int) -> Any:
        """Trains a copy of the server's network; without steps in the first round."""
        module: Any = copy.deepcopy(server).train()
        head, key = module.fc, module.fc.follower
        if self.stateful and self.target is not None:
            key.load_state_dict(self.target)
        if not self.stateful:
            self.memory = None
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
        streams = ClientStreams(SEED, 0, round, 0, self.number)
        order, seed = streams.numpy("order"), streams.torch_seed("model")
        torch.manual_seed(seed)
        for rows in [rows for _ in range(EPOCHS) for rows in order.permutation(EACH).reshape(-1, BATCH)]:
            x = self.x[rows]
            x1, x2, x3 = views(x)
            module(x1)
            z = normalize(module(x2))
            with torch.no_grad():
                for name, slow in key.named_parameters():
                    fast = module.get_parameter(name.replace("fc.", "fc.projector."))
                    slow.copy_(0.9 * slow + 0.1 * fast)
                t = normalize(key(x1))
            p, q = (torch.softmax(one @ head.centroids.T / 0.5, dim=1) for one in (t, z))
            r = torch.randint(4, (len(x),))
            x3 = torch.stack([torch.rot90(image, int(turns), (1, 2)) for image, turns in zip(x3, r, strict=True)])
            loss = cross_entropy(head.rotation(module(x3)), r) - (p * q.log()).sum(dim=1).mean()
            self.memory = (t if self.memory is None else torch.cat([t, self.memory]))[:MEMORY]
            if round > 1:
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
        if round > 1:
            self.target = copy.deepcopy(key.state_dict())
        return module

    def centroids(self, round: int) -> torch.Tensor:
        assert self.memory is not None
        rng = ClientStreams(SEED, 0, round, 1, self.number).numpy("clusters")
        found = self.memory[rng.choice(len(self.memory), LOCAL_CLUSTERS, replace=False)]
        for _ in range(5):
            nearest = plain_sinkhorn(self.memory @ found.T, 10).argmax(dim=1)
            new = []
            for cluster in range(LOCAL_CLUSTERS):
                members = self.memory[nearest == cluster]
                members = members if len(members) else self.memory[[rng.integers(len(self.memory))]]
                new.append(normalize(members.mean(dim=0), dim=0))
            found = torch.stack(new)
        return found


def plain_sinkhorn(scores: torch.Tensor, most: int = 100) -> torch.Tensor:
    """The marginals in turn, in float64, on the matrix itself."""
    n, k = scores.shape
    plan = torch.softmax(25 * scores.double(), dim=1) / n
    last = torch.full((n, 1), 1 / n, dtype=torch.float64)
    scale = last.clone()
    for iteration in range(most):
        plan = plan / plan.sum(dim=0) / k
        factor = 1 / n / plan.sum(dim=1, keepdim=True)
        plan = plan * factor
        before, scale = scale, scale * factor if iteration else factor / n
        if iteration % 10 == 0 and float((before / scale - 1).abs().sum()) < 0.01:
            break
    return (plan * n).float()


def test_sinkhorn_spreads_samples_evenly() -> None:
    scores = torch.rand(12, 4, generator=torch.Generator().manual_seed(3)) * 2 - 1
    shares = sinkhorn(scores, most=1000)
    assert torch.allclose(shares.sum(dim=1), torch.ones(12), atol=1e-5)
    assert torch.allclose(shares.sum(dim=0), torch.full((4,), 3.0), atol=0.02)
    for most in (1, 10, 100):
        assert torch.allclose(sinkhorn(scores, most), plain_sinkhorn(scores, most), atol=1e-5)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.slow
def test_three_rounds_are_those_of_plain_pytorch(stateful: bool) -> None:
    made = job(algorithm={"stateful": stateful})
    workload = made.workloads[0]
    server: Any = flat_model(made.scenario, workload).module.train()
    x = torch.from_numpy(workload.store.train.x).permute(0, 3, 1, 2) / 255
    clients = [Client(i, x[workload.store.train_shards[i]], stateful) for i in range(CLIENTS)]
    for round in (1, 2, 3):
        trained = [client.update(server, round).state_dict() for client in clients]
        if round > 1:
            mean = {name: sum(of[name].double() for of in trained) / CLIENTS for name in trained[0]}
            server.load_state_dict({name: tensor.to(trained[0][name].dtype) for name, tensor in mean.items()})
        sent = torch.cat([client.centroids(round) for client in clients])
        server.fc.centroids.copy_(fitted(server.fc.centroids, sent))
    vector, _ = run_on_hosts(made, 1)
    found = flat_model(made.scenario, workload).state_dict(torch.from_numpy(vector))
    for name, tensor in ((name, tensor) for name, tensor in found.items() if tensor.is_floating_point()):
        tolerance = 2e-3 if name == "fc.centroids" else 5e-5  # which 500 steps have fitted
        assert torch.allclose(tensor, server.state_dict()[name], rtol=2e-4, atol=tolerance), name


def fitted(before: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
    centroids = before.clone().requires_grad_()
    optimizer = torch.optim.SGD([centroids], lr=0.01, momentum=0.9, weight_decay=1e-4)
    for _ in range(500):
        wanted = plain_sinkhorn((sent @ centroids.T).detach())
        likely = torch.softmax(normalize(sent) @ centroids.T / 0.5, dim=1)
        optimizer.zero_grad()
        torch.autograd.backward(-cosine_similarity(wanted, likely).mean())
        optimizer.step()
        centroids.data = normalize(centroids.data)
    return centroids.detach()


PRIVATE = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"local_clusters": 11}}, "algorithm.local_clusters: 11 clusters .* rows of a memory of 10"),
        ({"task": {"memory": 30}}, "task.memory: client 0 trains on 24 samples .* too few to fill a memory of 30"),
        (
            {"phase": {"report": ["divergence"]}},
            "phases.p.report: 'divergence' compares trained models, .* answer with none in the phase's first round",
        ),
    ],
)
def test_settings_that_do_not_fit_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        job(**changes)


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_the_task_needs_its_algorithm(schedule: str) -> None:
    named = {"schedule": schedule, "algorithm": {"name": "fedavg"}}
    with pytest.raises(
        ScenarioError, match=r"^phase 'p' \(fedavg\): task 'orchestra' keeps memory with each client, which"
    ):
        job(phase=named)


def test_a_clock_plans_its_first_round_apart_from_the_later_ones() -> None:
    speed = 100.0
    _, events = run_on_hosts(job(participation={"up_bytes_per_s": speed}), 2)
    done = [event for event in events if isinstance(event, RoundDone)]
    sent = [event.traffic.up_bytes / CLIENTS for event in done]
    assert [event.simulated and event.simulated.seconds for event in done] == pytest.approx([up / speed for up in sent])
    of_centroids = 4 * LOCAL_CLUSTERS * WIDTH
    assert sent[0] == of_centroids
    assert sent[2] - sent[1] == sent[1] - sent[0] > of_centroids


def test_a_clock_counts_the_batches_that_fill_the_memories() -> None:
    _, events = run_on_hosts(job(participation={"steps_per_s": 1.0}), 2)
    done = [event for event in events if isinstance(event, RoundDone)]
    steps = EPOCHS * EACH // BATCH
    assert [event.simulated and event.simulated.seconds for event in done] == [steps, 2 * steps, 3 * steps]
