"""Per-FedAvg against its iterations in float64, and its Hessian-free form against the Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.perfedavg import PerFedAvg
from rayfl.engine.events import RoundDone
from rayfl.errors import ClientError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.streams import client_stream
from tests.algorithms.reference import (
    PlainUpdate,
    Vector,
    assert_equal_and_unlike,
    cross_entropy,
    distance,
    fedavg,
    gradient,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import LOUD, PLAIN, SEED, Setting, prepared, trained
from tests.engine.scenes import run_on_hosts
from tests.local.bench import shared_bench

INNER_LR = 0.4
FIRST_ORDER, HESSIAN_FREE, EXACT = "first_order", "hessian_free", "exact"
FULL_BATCHES = Setting(((0, 3, 4),), 2, {"steps": 3, "epochs": 9, "batch_size": "full", "lr": 0.3})


def perfedavg_of(setting: Setting, variant: str = FIRST_ORDER, phase: Any = None, **options: Any) -> Vector:
    algorithm = {"name": "perfedavg", "inner_lr": INNER_LR, "variant": variant, **options}
    return trained(algorithm, setting, **(phase or {}))


def hessian_vector_product(w: Vector, vector: Vector, x: torch.Tensor, y: torch.Tensor) -> Vector:
    w = w.clone().requires_grad_()
    (slope,) = torch.autograd.grad(cross_entropy(w, x, y), w, create_graph=True)
    (product,) = torch.autograd.grad((slope * vector).sum(), w)
    return product


def local_steps(update: PlainUpdate, w: Vector, round: int, variant: str, delta: float) -> tuple[Vector, list[float]]:
    """What a client makes of w, and the loss after every adaptation; `exact` has the Hessian itself."""
    setting, losses = update._local, []
    purposes = ("adaptation batch", "meta batch", "Hessian batch")
    streams = [client_stream(SEED, purpose, 0, round, update.client) for purpose in purposes]
    size = update.n if setting["batch_size"] == "full" else min(setting["batch_size"], update.n)
    for _ in range(min(update.K, setting.get("steps", update.K))):
        first, second, third = (
            (update.x[rows], update.y[rows])
            for rows in (stream.choice(update.n, size, replace=False) for stream in streams)
        )
        adapted = w - INNER_LR * gradient(cross_entropy, w, *first)
        losses.append(float(cross_entropy(adapted, *second)))
        v = step = gradient(cross_entropy, adapted, *second)
        if variant == HESSIAN_FREE:
            ahead, behind = (gradient(cross_entropy, w + side * delta * v, *third) for side in (1, -1))
            step = v - INNER_LR * (ahead - behind) / (2 * delta)
        elif variant == EXACT:
            step = v - INNER_LR * hessian_vector_product(w, v, *third)
        w = w - update.lr * step
    return w, losses


def perfedavg(
    setting: Setting, variant: str = FIRST_ORDER, delta: float = 1e-3, weighting: str = "uniform"
) -> tuple[Vector, list[float]]:
    """The final model, and each round's training loss: the mean over all steps of all clients."""
    w, losses = setting.initial(), []
    for number, cohort in enumerate(rounds(setting), start=1):
        ends = [local_steps(update, w, number, variant, delta) for update in cohort]
        w = mean([end for end, _ in ends], sizes(cohort) if weighting == "samples" else None)
        losses.append(float(np.mean([value for _, of_client in ends for value in of_client])))
    return w, losses


@pytest.mark.parametrize("setting", [PLAIN, LOUD], ids=["partial", "loud"])
def test_first_order(setting: Setting) -> None:
    ours, (expected, _) = perfedavg_of(setting), perfedavg(setting)
    assert_equal_and_unlike(ours, expected, perfedavg(setting, EXACT)[0], setting)
    assert_equal_and_unlike(ours, expected, fedavg(setting, uniform=True), setting)


def test_hessian_free_on_full_batches() -> None:
    """With a step that float32 leaves precise, and so large that the difference is not yet the Hessian."""
    ours = perfedavg_of(FULL_BATCHES, HESSIAN_FREE, delta=0.8)
    expected, _ = perfedavg(FULL_BATCHES, HESSIAN_FREE, delta=0.8)
    for other in (FIRST_ORDER, EXACT):
        assert_equal_and_unlike(ours, expected, perfedavg(FULL_BATCHES, other)[0], FULL_BATCHES)


def test_the_hessian_free_form_tends_to_the_hessians() -> None:
    """Its error falls with the square of the step, until float32 ends that."""
    once = Setting(PLAIN.cohorts, 1, PLAIN.local)
    exact, _ = perfedavg(once, EXACT)
    errors = [distance(perfedavg_of(once, HESSIAN_FREE, delta=delta), exact, once) for delta in (0.3, 0.1, 0.03)]
    assert errors[0] > 6 * errors[1] > 36 * errors[2] > 1e-4
    by_default = perfedavg_of(once, HESSIAN_FREE)
    assert distance(by_default, exact, once) < 1e-4
    assert torch.equal(by_default, perfedavg_of(once, HESSIAN_FREE, delta=1e-3))


@pytest.mark.parametrize("variant", [FIRST_ORDER, EXACT])
def test_clients_count_alike_or_by_their_samples(variant: str) -> None:
    chosen = FIRST_ORDER if variant == FIRST_ORDER else HESSIAN_FREE
    ours = perfedavg_of(PLAIN, chosen, weighting="samples")
    expected, _ = perfedavg(PLAIN, variant, weighting="samples")
    other, _ = perfedavg(PLAIN, variant)
    assert distance(ours, expected, PLAIN) < (1e-5 if variant == FIRST_ORDER else 1e-4)
    assert distance(other, expected, PLAIN) > 1e-2


def test_the_training_loss_is_that_of_the_adapted_models() -> None:
    job, _ = prepared({"name": "perfedavg", "inner_lr": INNER_LR}, PLAIN)
    done = [event for event in run_on_hosts(job, 2)[1] if isinstance(event, RoundDone)]
    assert [event.train_loss for event in done] == pytest.approx(perfedavg(PLAIN)[1], rel=1e-5)
    assert [event.steps for event in done] == [sum(update.K for update in cohort) for cohort in rounds(PLAIN)]


def test_a_relay_takes_the_clients_steps_one_after_another() -> None:
    cohort = (3, 0, 4)
    setting = Setting((cohort,), 2, PLAIN.local)
    w = setting.initial()
    for number, clients in enumerate(rounds(setting), start=1):
        for update in clients:
            w, _ = local_steps(update, w, number, FIRST_ORDER, 1e-3)
    ours = perfedavg_of(setting, phase={"schedule": "relay"})
    assert_equal_and_unlike(ours, w, perfedavg(setting)[0], setting)


@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_divergence_is_told_with_what_may_help(schedule: str) -> None:
    setting = Setting(((0,),), 1, {"epochs": 20, "batch_size": 2, "lr": 1e38})
    with pytest.raises(ClientError, match=r"training diverged: .* after 60 steps; a smaller lr or inner_lr may help"):
        trained("perfedavg", setting, schedule=schedule)


def test_batches_are_augmented() -> None:
    def outcome(augment: list[str]) -> np.ndarray:
        job, _ = prepared(
            {"name": "perfedavg", "inner_lr": 0.1},
            Setting(((0, 1),), 1, {"steps": 2, "batch_size": 4, "lr": 0.1}),
            data={"name": "handwriting", "clients": 4, "augment": augment},
            model={"name": "mlp", "hidden": [8]},
        )
        return run_on_hosts(job, 1)[0]

    assert not np.array_equal(outcome([]), outcome(["flip"]))


def test_the_gradients_of_a_difference_see_the_same_inputs() -> None:
    """Their batch is one and is not augmented; all batches are drawn anew in every iteration, without replacement."""
    bench, seen = shared_bench(), list[Any]()
    algorithm = PerFedAvg(variant="hessian_free")

    def watched(client: ClientContext) -> ClientUpdate[Answer]:
        update = algorithm.client_update(client, bench.initial)
        request = next(update)
        while True:
            seen.append(request.data)
            try:
                request = update.send((yield request))
            except StopIteration as end:
                answer: Answer = end.value
                return answer

    bench.run(bench.client(4, {"steps": 3, "batch_size": 6}), watched)
    assert [data.augment for data in seen] == [True, True, None, None] * 3
    for iteration in range(3):
        ahead, behind = seen[4 * iteration + 2 : 4 * iteration + 4]
        assert np.array_equal(ahead.places, behind.places)
    batches = [tuple(sorted(data.places)) for number, data in enumerate(seen) if number % 4 < 3]
    assert all(len(set(batch)) == 6 for batch in batches)
    assert len(set(batches)) == len(batches) == 9
