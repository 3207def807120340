"""SimSiam and MoCo beside plain PyTorch, on views that are the same in every batch; and what they reject."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.engine.events import Evaluated
from rayfl.engine.initial_model import flat_model
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import ScenarioError
from rayfl.local.context import ClientStreams
from rayfl.models.flat import FlatModel
from tests.engine.scenes import prepared, run_on_hosts
from tests.views_scene import VIEWS, views

SAMPLES, STEPS, LR, MOMENTUM, DECAY = 12, 3, 0.05, 0.9, 1e-3


def images() -> Dataset:
    rng = np.random.default_rng(5)
    train, test = (
        Samples(rng.integers(256, size=(n, 2, 3, 1), dtype=np.uint8), np.arange(n, dtype=np.int64) % 3)
        for n in (SAMPLES, 8)
    )
    return Dataset("images", train, test, 3, Provenance("arrays", "numbers"))


def job(task: Any, model: str, local: dict[str, Any] | None = None, **changes: Any) -> RunPlan:
    training = {"batch_size": SAMPLES, "lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY, "epochs": STEPS}
    return prepared(
        **{
            "data": {"name": f"{__name__}:images", "clients": 1, "views": VIEWS[:2]},
            "model": {"name": model, "network": "tests.views_scene:Encoder", "width": 4},
            "task": task,
            "phases": [{"name": "p", "schedule": "central", "rounds": 1, "local": training | (local or {})}],
            "evaluation": {"every": 1},
        }
        | changes
    )


def beginning(made: RunPlan) -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]:
    """The initial network in training mode, and both views of all samples."""
    workload = made.workloads[0]
    x = torch.from_numpy(workload.store.train.x).permute(0, 3, 1, 2) / 255
    return flat_model(made.scenario, workload).module.train(), views(x)[:2]


def agree(made: RunPlan, module: nn.Module) -> None:
    expected = FlatModel(module, torch.device("cpu")).vector.detach().numpy()
    difference = np.abs(run_on_hosts(made, 1)[0] - expected).max()
    assert difference < 2e-6


def optimizer_of(module: nn.Module) -> torch.optim.SGD:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return torch.optim.SGD(trained, lr=LR, momentum=MOMENTUM, weight_decay=DECAY)


def test_simsiam_is_the_paper_s_loss() -> None:
    made = job("simsiam", "siamese")
    module, (first, second) = beginning(made)
    head, optimizer = module.fc, optimizer_of(module)
    for _ in range(STEPS):
        (z1, p1), (z2, p2) = (module(x).unbind(1) for x in (first, second))
        losses = [-0.5 * (normalize(p) * normalize(z).detach()).sum(dim=1).mean() for p, z in ((p1, z2), (p2, z1))]
        optimizer.zero_grad()
        torch.autograd.backward(torch.stack(losses).sum())
        optimizer.step()
    assert head.projector[-2].bias.grad is None
    agree(made, module)


def test_moco_is_the_authors_order_of_keys_queue_and_step() -> None:
    made = job(moco(2 * SAMPLES) | {"momentum": 0.9}, "momentum_contrast", {"drop_last": True})
    module, (first, second) = beginning(made)
    pool = made.phases[0].num_clients
    drawn = (
        ClientStreams(made.scenario.seed, 0, 1, 0, pool).numpy("queue").standard_normal((2 * SAMPLES, 4), np.float32)
    )
    queue = list(torch.split(normalize(torch.from_numpy(drawn)), SAMPLES))
    optimizer, key = optimizer_of(module), module.fc.follower
    pairs = {"first.weight": "first.weight", "norm.weight": "norm.weight", "norm.bias": "norm.bias"}
    pairs |= {f"fc.{name}": f"fc.projector.{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")}
    assert set(pairs) == {name for name, _ in key.named_parameters()}
    for _ in range(STEPS):
        q = normalize(module(first))
        with torch.no_grad():
            for slow, fast in pairs.items():
                own = key.get_parameter(slow)
                own.copy_(0.9 * own + 0.1 * module.get_parameter(fast))
            k = normalize(key(second))
        logits = torch.cat([(q * k).sum(dim=1, keepdim=True), q @ torch.cat(queue).T], dim=1) / 0.2
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(logits, torch.zeros(SAMPLES, dtype=torch.long)))
        optimizer.step()
        queue = [*queue[1:], k]
    agree(made, module)


@pytest.mark.parametrize(
    ("task", "model"), [("simsiam", "siamese"), ({"name": "moco", "queue": SAMPLES}, "momentum_contrast")]
)
def test_heads_are_scored_by_their_spread(task: Any, model: str) -> None:
    _, events = run_on_hosts(job(task, model, {"drop_last": True}), 2)
    scores = next(event.scores for event in events if isinstance(event, Evaluated))
    assert scores["test_spread"] is not None
    assert 0 < scores["test_spread"] < 2
    assert (scores["test_loss"] is None) == (model == "momentum_contrast")


def moco(queue: int) -> dict[str, Any]:
    return {"name": "moco", "queue": queue}


@pytest.mark.parametrize(
    ("task", "model", "drop_last", "message"),
    [
        ("simsiam", "momentum_contrast", False, r"projections with predictions, .*use model = \{ name = \"siamese\""),
        (moco(12), "siamese", True, r"use model = \{ name = \"momentum_contrast\""),
        (moco(20), "momentum_contrast", True, "task.queue: 20 keys are not a multiple of local.batch_size = 12"),
        (moco(12), "momentum_contrast", False, "set local.drop_last = true"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(task: Any, model: str, drop_last: bool, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        job(task, model, {"drop_last": drop_last})


def test_views_without_augmentations_are_rejected() -> None:
    with pytest.raises(ScenarioError, match="'simsiam' compares 2 augmented views of every batch"):
        job("simsiam", "siamese", data={"name": f"{__name__}:images", "clients": 1})


def test_a_batch_of_one_is_rejected_where_batch_norm_cannot_take_it() -> None:
    with pytest.raises(
        ScenarioError,
        match=r"phases.p.local: central training has 12 samples, which leave a batch of one .* drop_last = true",
    ):
        job("simsiam", "siamese", {"batch_size": 11})
    job("simsiam", "siamese", {"batch_size": 11, "drop_last": True})


def test_moco_needs_a_whole_batch_of_every_client() -> None:
    with pytest.raises(ScenarioError, match=r"client 0 has 12 samples, fewer than local\.batch_size = 16"):
        job(moco(32), "momentum_contrast", {"drop_last": True, "batch_size": 16})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"name": "fedavg", "buffers": "keep"}}, "'buffers' would also bring back .* 'fc.follower"),
        ({"algorithm": {"name": "fedavg", "buffers": "reset"}}, "'buffers' would also bring back .* 'fc.follower"),
        ({"algorithm": "ditto"}, r"'ditto' trains two models .* what task 'moco' keeps there \(oldest, queue\)"),
        ({"dp": {"level": "central", "clip_norm": 1.0, "noise_multiplier": 1.0, "delta": 0.01}}, "follows trained"),
    ],
)
def test_what_would_hold_or_mix_queues_and_key_networks_of_clients_is_rejected(changes: Any, message: str) -> None:
    local = {"batch_size": 4, "lr": LR, "epochs": 1, "drop_last": True}
    algorithm = {"name": "fedavg", "weighting": "uniform"}
    base = {"name": "p", "rounds": 1, "cohort": 2, "algorithm": algorithm, "local": local}
    data = {"name": f"{__name__}:images", "clients": 2, "views": VIEWS[:2], "partition": "iid"}
    with pytest.raises(ScenarioError, match=message):
        job(moco(12), "momentum_contrast", data=data, phases=[base | changes])
    job(moco(12), "momentum_contrast", data=data, phases=[base])


def test_a_follower_moves_with_a_step_of_one_batch() -> None:
    with pytest.raises(ScenarioError, match=r"local\.accumulate: task 'moco' moves its follower with every batch"):
        job(moco(12), "momentum_contrast", {"batch_size": 6, "accumulate": 2, "drop_last": True})
