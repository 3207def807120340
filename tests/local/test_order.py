"""Class-balanced sampling of a client's batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rayfl.config.local import Local
from rayfl.errors import ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.steps import passes
from rayfl.streams import client_stream
from tests.algorithms.reference import PlainUpdate, Vector, assert_equal_and_unlike, fedavg, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, PLAIN, SEED, Setting, prepared, trained
from tests.engine.scenes import run_on_hosts
from tests.local.bench import shared_bench

BALANCED: dict[str, Any] = {"sampling": "balanced"}
CLASSES = np.repeat([4, 0, 7], [90, 9, 1])


def draws(local: dict[str, Any], classes: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    return list(passes(Local.model_validate(BALANCED | local), len(classes), np.random.default_rng(seed), classes))


def test_every_class_that_occurs_is_equally_likely_and_so_is_every_sample_within_it() -> None:
    taken = np.concatenate(draws({"epochs": 300, "batch_size": 100}, CLASSES))
    number = len(taken)
    assert number == 300 * len(CLASSES)
    for label, count in zip(*np.unique(CLASSES, return_counts=True), strict=True):
        places = np.flatnonzero(label == CLASSES)
        for probability, seen in [
            (1 / 3, int(np.isin(taken, places).sum())),
            *((1 / (3 * count), int((taken == place).sum())) for place in places),
        ]:
            assert abs(seen - number * probability) < 5 * np.sqrt(number * probability * (1 - probability))


def test_draws_are_independent_with_replacement() -> None:
    """A class of one sample fills a third of every batch; what follows a draw does not depend on it."""
    taken = CLASSES[np.concatenate(draws({"epochs": 300}, CLASSES))]
    after_rare = taken[1:][taken[:-1] == 7]
    error = 5 * np.sqrt(2 / 9 / len(after_rare))
    assert all(abs((after_rare == label).mean() - 1 / 3) < error for label in (0, 4, 7))


WAYS: list[dict[str, Any]] = [{}, {"steps": 5}, {"drop_last": True}, {"accumulate": 2}, {"batch_size": "full"}]


@pytest.mark.parametrize("local", WAYS, ids=str)
def test_steps_and_their_sizes_are_those_of_uniform_sampling(local: dict[str, Any]) -> None:
    local = {"epochs": 3, "batch_size": 8} | local
    plain = list(passes(Local.model_validate(local), len(CLASSES), np.random.default_rng(0)))
    assert [len(places) for places in draws(local, CLASSES)] == [len(places) for places in plain]


def test_draws_follow_from_the_generator_alone() -> None:
    first, again, other = (np.concatenate(draws({"epochs": 2}, CLASSES, seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def balanced(update: PlainUpdate, setting: Setting, round: int) -> PlainUpdate:
    """The same client update on balanced draws: of a class, then of one of its samples, as one weighted choice."""
    stream = client_stream(SEED, "order", 0, round, update.client)
    classes = sorted(set(update.y.tolist()))
    chances = np.array([1 / len(classes) / int((update.y == label).sum()) for label in update.y])
    size = setting.local["batch_size"]
    epochs = [stream.choice(update.n, update.n, p=chances) for _ in range(setting.local["epochs"])]
    update.batches = [rows[first : first + size] for rows in epochs for first in range(0, update.n, size)]
    return update


@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING], ids=["plain", "everything"])
def test_clients_train_on_balanced_batches_from_their_own_streams(setting: Setting) -> None:
    w: Vector = setting.initial()
    for number, cohort in enumerate(rounds(setting), start=1):
        w = mean([balanced(update, setting, number).sgd(w) for update in cohort], sizes(cohort))
    assert_equal_and_unlike(trained("fedavg", setting.with_local(**BALANCED)), w, fedavg(setting), setting)


def test_the_bits_are_the_same_on_any_number_of_hosts() -> None:
    setting = EVERYTHING.with_local(**BALANCED, sample_weights="inverse_frequency")
    one, two, three = (run_on_hosts(prepared("fedavg", setting)[0], hosts)[0] for hosts in (1, 2, 3))
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)


def test_classes_are_those_of_the_part_that_trains() -> None:
    """A view of a single class draws that class alone."""
    bench = shared_bench()
    labels = bench.source.labels(bench.source.shard(4), bench.source.set_of(4)).numpy()
    only = np.flatnonzero(labels == labels[0])
    assert 1 < len(only) < len(labels)

    def trained_on(sampling: str) -> torch.Tensor:
        def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
            view = type(client.data)(only)
            trained: torch.Tensor = yield LocalTraining(bench.initial, data=view)
            return trained

        return bench.run(bench.client(4, {"batch_size": "full", "sampling": sampling}), update)

    first, other = trained_on("balanced"), trained_on("uniform")
    assert not torch.equal(first, bench.initial)
    assert not torch.equal(first, other)


def refusal(setting: Setting, **changes: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        prepared(changes.pop("algorithm", "fedavg"), setting, **changes)
    return str(caught.value)


def test_orders_without_classes_or_effect_are_rejected() -> None:
    setting = PLAIN.with_local(**BALANCED)
    numbers: dict[str, Any] = {
        "data": {"name": "tests.engine.test_tasks:numbers", "clients": 12},
        "model": {"name": "mlp", "hidden": [4]},
        "task": {"name": "regression"},
    }
    said = "'balanced' needs one class per sample, but labels of data 'tests.engine.test_tasks:numbers' are float32"
    assert refusal(setting, **numbers) == f"phases.federated.local.sampling: {said}; leave it out"
    tuned = {"personalize": BALANCED}, {"test_share": 0.2, **numbers["data"]}
    assert refusal(PLAIN, **numbers | {"evaluation": tuned[0], "data": tuned[1]}) == (
        f"evaluation.personalize.sampling: {said}; leave it out"
    )
    dp = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    for sampling in ("poisson", "shuffled"):
        assert refusal(setting.with_local(dp=dp | {"sampling": sampling})) == (
            "phases.federated.local.sampling: cannot be combined with dp: no accountant covers draws that depend on "
            "classes; leave it out"
        )
    assert refusal(setting, algorithm="perfedavg").startswith("phases.federated.local.sampling: has no effect")
    assert "shuffle has no effect with sampling = 'balanced', which has no passes" in refusal(
        setting.with_local(shuffle=False)
    )
