"""FedAvg and the relay, against a plain loop over ordinary modules with torch.optim.SGD."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

import rayfl
from rayfl.config import Scenario, load_scenario
from rayfl.config.local import Local
from rayfl.config.phase import Phase
from rayfl.engine.plan.cohort import cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.runs.preparation import prepare
from rayfl.streams import stream, torch_seed
from tests.engine.scenes import run_on_hosts
from tests.user_code import CLASSES, SHARD_SIZES, FrozenNormNet, SmallConvNet, SpareHeadNet, pictures

SEED = 3
DATA = pictures()
X, Y = (torch.from_numpy(part) for part in (DATA.train.x, DATA.train.y))
TEST_X, TEST_Y = (torch.from_numpy(part) for part in (DATA.test.x, DATA.test.y))

WAYS_TO_TRAIN: dict[str, dict[str, Any]] = {
    "two_epochs_with_everything": {
        "epochs": 2,
        "batch_size": 4,
        "lr": 0.2,
        "lr_decay": 0.5,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "clip_norm": 0.3,
    },
    "drop_last": {"epochs": 2, "batch_size": 6, "lr": 0.1, "drop_last": True},
    "capped_steps": {"epochs": 3, "steps": 5, "batch_size": 4, "lr": 0.1, "lr_decay": 0.9},
    "full_batch": {"epochs": 3, "batch_size": "full", "lr": 0.3},
}


def scenario(first: dict[str, Any], second: dict[str, Any], model: Any = "tests.user_code:SmallConvNet") -> Scenario:
    tables = {
        "seed": SEED,
        "data": {"name": "tests.user_code:pictures"},
        "model": model,
        "phases": [{"name": "first", **first}, {"name": "second", **second}],
    }
    return load_scenario(tables)


def images(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 3, 1, 2).float() / 255


def batches(local: Local, rows: np.ndarray, order: np.random.Generator) -> Iterator[np.ndarray]:
    """Every batch of a client update: passes in random order, cut into batches; the short one is kept or dropped."""
    taken = 0
    assert isinstance(local.epochs, int)
    for _ in range(local.epochs):
        shuffled = rows[order.permutation(len(rows))]
        size = len(rows) if local.batch_size == "full" else local.batch_size
        cut = [shuffled[start : start + size] for start in range(0, len(rows), size)]
        if local.drop_last and len(cut) > 1 and len(cut[-1]) < size:
            cut.pop()
        for batch in cut:
            if taken == local.steps:
                return
            taken += 1
            yield batch


def client_update(net: SmallConvNet, local: Local, phase: int, round: int, client: int) -> list[float]:
    """Trains `net` in place as one client does; the loss of every step."""
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": partial(torch.optim.SGD, momentum=local.momentum),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    optimizer = kinds[local.optimizer.name](
        net.parameters(),
        lr=local.lr * local.lr_decay ** (round - 1),
        weight_decay=local.weight_decay,
        **local.optimizer.options,
    )
    losses = []
    net.train()
    rows = np.flatnonzero(np.repeat(np.arange(len(SHARD_SIZES)), SHARD_SIZES) == client)
    for batch in batches(local, rows, stream(SEED, "order", phase, round, client)):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images(X[batch])), Y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        if local.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), local.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


def parallel_round(net: SmallConvNet, phase: Phase, round_index: RoundIndex, cohort: list[int]) -> list[float]:
    """FedAvg, weighted by the clients' sample counts, in float64."""
    total = sum(SHARD_SIZES[client] for client in cohort)
    mean = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in net.state_dict().items()}
    losses = []
    for client in cohort:
        local_net = copy.deepcopy(net)
        losses += client_update(local_net, phase.local, round_index.phase, round_index.round, client)
        for name, value in local_net.state_dict().items():
            mean[name] += SHARD_SIZES[client] / total * value.double()
    net.load_state_dict({name: value.float() for name, value in mean.items()})
    return losses


def plain_run(
    given: Scenario, kind: Callable[[int], SmallConvNet] = SmallConvNet
) -> tuple[SmallConvNet, list[dict[str, float]]]:
    """The final network, and after each round the training loss and the score on the test images."""
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(SEED, "initial"))
        net = kind(CLASSES)
    history, round, last = [], 0, None
    for index, phase in enumerate(given.phases):
        for round_in_phase in range(1, phase.rounds + 1):
            round += 1
            round_index = RoundIndex(index, round, round_in_phase)
            cohort = cohort_of(
                phase, SEED, round_index, np.array(SHARD_SIZES), last if phase.schedule == "relay" else None
            )
            if phase.schedule == "relay":
                losses = [loss for client in cohort for loss in client_update(net, phase.local, index, round, client)]
                last = cohort[-1]
            else:
                losses = parallel_round(net, phase, round_index, cohort)
            net.eval()
            with torch.no_grad():
                logits = net(images(TEST_X))
            history.append(
                {
                    "train_loss": float(np.mean(losses)),
                    "test_loss": F.cross_entropy(logits, TEST_Y).item(),
                    "test_accuracy": (logits.argmax(1) == TEST_Y).float().mean().item(),
                }
            )
    return net, history


RELAY: dict[str, Any] = {"schedule": "relay", "rounds": 2, "cohort": 0.6}
PARALLEL: dict[str, Any] = {"schedule": "parallel", "rounds": 2, "cohort": 3}


@pytest.mark.parametrize(
    ("first", "second", "way"),
    [*((RELAY, PARALLEL, way) for way in WAYS_TO_TRAIN), (PARALLEL, RELAY, "two_epochs_with_everything")],
)
def test_relay_and_fedavg_equal_a_plain_loop(
    first: dict[str, Any], second: dict[str, Any], way: str, tmp_path: Path
) -> None:
    local = WAYS_TO_TRAIN[way]
    given = scenario(first | {"local": local}, second | {"local": local | {"lr": local["lr"] / 2}})
    result = rayfl.run(given, backend="inline", out=tmp_path, console=Console(quiet=True))
    net, history = plain_run(given)

    expected = net.state_dict()
    assert list(result.state_dict) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(result.state_dict[name], value, rtol=1e-5, atol=2e-6)
    rows = result.metrics.to_pylist()
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    for row, plain in zip(rows, history, strict=True):
        assert row["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-5)
        assert row["test_loss"] == pytest.approx(plain["test_loss"], rel=1e-5)
        assert row["test_accuracy"] == pytest.approx(plain["test_accuracy"])


def test_a_network_whose_train_keeps_batch_norm_frozen_trains_as_in_a_plain_loop() -> None:
    local = {"local": {"epochs": 2, "batch_size": 4, "lr": 0.1}}
    given = scenario(RELAY | local, PARALLEL | local, "tests.user_code:FrozenNormNet")
    job, model = prepare(given, Path("no-data-here"))
    vector, _ = run_on_hosts(job, 2)
    net, _ = plain_run(given, FrozenNormNet)
    for name, value in model.state_dict(torch.from_numpy(vector)).items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", [{"name": "sgd"}, {"name": "adamw", "eps": 0.01}])
def test_a_head_that_no_loss_reaches_keeps_its_bits_through_all_rounds(optimizer: dict[str, Any]) -> None:
    """A large eps keeps Adam from dividing what rounding leaves of a small gradient by something as small."""
    options = {"optimizer": optimizer, "weight_decay": 0.1, "momentum": 0.9 if optimizer["name"] == "sgd" else 0.0}
    local = {"local": {"epochs": 2, "batch_size": 4, "lr": 0.01, **options}}
    given = scenario(RELAY | local, PARALLEL | local, "tests.user_code:SpareHeadNet")
    job, model = prepare(given, Path("no-data-here"))
    initial = model.state_dict(torch.from_numpy(job.workloads[0].initial.vector))
    vector, _ = run_on_hosts(job, 1)
    net, _ = plain_run(given, SpareHeadNet)
    for name, value in model.state_dict(torch.from_numpy(vector)).items():
        torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-6, atol=1e-6)
        assert torch.equal(value, initial[name]) == name.startswith("spare")


def test_training_moves_every_tensor_far_and_transfers_are_those_of_the_protocol(tmp_path: Path) -> None:
    """Two transfers a client update, of 4 bytes a parameter; the change makes the comparison above say something."""
    given = scenario(RELAY | {"local": {"lr": 0.1}}, PARALLEL | {"local": {"lr": 0.1}})
    result = rayfl.run(given, backend="inline", out=tmp_path, console=Console(quiet=True))
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(SEED, "initial"))
        initial = SmallConvNet(CLASSES).state_dict()
    assert all((result.state_dict[name] - value).abs().max() > 1e-3 for name, value in initial.items())
    parameters = sum(value.numel() for value in initial.values())
    updates = np.cumsum([3, 3, 3, 3])
    assert result.metrics["transfers"].to_pylist() == [2 * n for n in updates]
    assert result.metrics["bytes"].to_pylist() == [2 * n * 4 * parameters for n in updates]


def test_uniform_weighting_averages_clients_alike(tmp_path: Path) -> None:
    phase = {"rounds": 1, "cohort": {"explicit": [[1, 2]]}, "local": {"lr": 0.2, "batch_size": 4}}
    uniform = scenario(
        phase | {"algorithm": {"name": "fedavg", "weighting": "uniform"}},
        {"schedule": "relay", "rounds": 1, "cohort": 1},
    )
    uniform = uniform.model_copy(update={"phases": uniform.phases[:1]})
    result = rayfl.run(uniform, backend="inline", out=tmp_path, console=Console(quiet=True))
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(SEED, "initial"))
        net = SmallConvNet(CLASSES)
    ones = []
    for client in (1, 2):
        local_net = copy.deepcopy(net)
        client_update(local_net, uniform.phases[0].local, 0, 1, client)
        ones.append(local_net.state_dict())
    for name, value in result.state_dict.items():
        torch.testing.assert_close(value, (ones[0][name] + ones[1][name]) / 2, rtol=1e-5, atol=1e-6)
