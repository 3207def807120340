"""Epochs and steps that are drawn for every client and round, from the client's own streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayfl.config.local import Local
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.steps import drawn, smallest, typical, update_steps
from rayfl.streams import client_stream
from tests.algorithms.reference import PlainUpdate, assert_equal_and_unlike, mean, rounds, sizes
from tests.algorithms.scene import PLAIN, SEED, SIZES, Setting, trained
from tests.local.bench import shared_bench

UNIFORM = {"uniform": [1, 5]}


def epochs_of(client: int, round: int, exchange: int = 0, **local: Any) -> int:
    """What the client sees, which is a number."""
    context = shared_bench().client(
        client, {"epochs": UNIFORM, "batch_size": 4} | local, round=round, exchange=exchange
    )
    assert isinstance(context.local.epochs, int)
    assert context.steps == context.local.epochs * -(-SIZES[client] // 4)
    return context.local.epochs


def test_every_client_and_round_has_its_own_number() -> None:
    by_client = [epochs_of(client, 1) for client in range(12)]
    by_round = [epochs_of(3, round) for round in range(1, 13)]
    assert set(by_client) <= set(range(1, 6)) >= set(by_round)
    assert min(len(set(by_client)), len(set(by_round))) > 2
    assert by_client == [epochs_of(client, 1) for client in range(12)]


def test_all_exchanges_of_a_round_have_the_same_number() -> None:
    assert [epochs_of(3, round, exchange=1) for round in range(1, 9)] == [epochs_of(3, round) for round in range(1, 9)]


def test_drawing_steps_too_does_not_change_the_epochs() -> None:
    for round in range(1, 6):
        context = shared_bench().client(
            4, {"epochs": UNIFORM, "steps": {"choices": [1, 2]}, "batch_size": 4}, round=round
        )
        assert context.local.epochs == epochs_of(4, round)
        assert context.local.steps in (1, 2)
        assert context.steps == context.local.steps


def test_both_ends_and_all_choices_come_up_and_a_number_listed_twice_is_twice_as_likely() -> None:
    def numbers(epochs: dict[str, Any]) -> list[Any]:
        local, rng = Local.model_validate({"epochs": epochs}), np.random.default_rng(0)
        return [drawn(local, lambda _: rng).epochs for _ in range(3000)]

    counts = np.bincount(numbers({"uniform": [2, 4]}), minlength=6)
    assert counts[[0, 1, 5]].sum() == 0
    assert (np.abs(counts[2:5] - 1000) < 120).all()
    counts = np.bincount(numbers({"choices": [1, 7, 7]}))
    assert abs(counts[7] - 2 * counts[1]) < 240
    assert counts[1] + counts[7] == 3000


def test_training_takes_as_many_steps_as_the_client_was_told() -> None:
    bench, taken = shared_bench(), []

    def update(client: ClientContext) -> ClientUpdate[None]:
        yield LocalTraining(bench.initial)

    for round in range(1, 7):
        client = bench.client(4, {"epochs": UNIFORM, "batch_size": 4}, round=round)
        bench.run(client, update)
        taken.append(len(client.losses))
    assert taken == [4 * epochs_of(4, round) for round in range(1, 7)]


def test_plans_use_the_mean_and_checks_the_shortest_update() -> None:
    local = Local.model_validate({"epochs": {"uniform": [2, 5]}, "steps": {"choices": [4, 4, 10]}, "batch_size": 1})
    assert (typical(local).epochs, typical(local).steps) == (4, 6)
    assert (smallest(local).epochs, smallest(local).steps) == (2, 4)
    assert update_steps(smallest(local), 100) == 4
    plain = Local(epochs=3)
    assert plain is typical(plain) is smallest(plain)


def with_drawn_epochs(setting: Setting) -> list[list[PlainUpdate]]:
    """The reference's updates, each with the number of epochs that its client drew."""

    def redrawn(update: PlainUpdate, round: int) -> PlainUpdate:
        rng = client_stream(SEED, "local epochs", 0, round, update.client)
        return PlainUpdate(setting.with_local(epochs=int(rng.integers(1, 6))), update.client, round)

    plain = rounds(setting.with_local(epochs=1))
    return [[redrawn(update, number) for update in cohort] for number, cohort in enumerate(plain, start=1)]


@pytest.mark.parametrize("algorithm", ["fedavg", "fednova"])
def test_fednova_corrects_for_steps_that_were_drawn(algorithm: str) -> None:
    w, setting = PLAIN.initial(), PLAIN.with_local(epochs=UNIFORM)
    for cohort in with_drawn_epochs(setting):
        p = np.array(sizes(cohort)) / sum(sizes(cohort))
        taus = np.array([update.K if algorithm == "fednova" else 1 for update in cohort])
        changes = [(update.sgd(w) - w) / int(tau) for update, tau in zip(cohort, taus, strict=True)]
        w = w + float(p @ taus) * mean(changes, sizes(cohort))
    assert_equal_and_unlike(trained(algorithm, setting), w, trained(algorithm, PLAIN), PLAIN)


@pytest.mark.parametrize(
    "value",
    [{"uniform": [5, 1]}, {"uniform": [1]}, {"uniform": [0, 3]}, {"choices": []}, {"choices": [0]}, {}],
    ids=str,
)
@pytest.mark.parametrize("key", ["epochs", "steps"])
def test_impossible_draws_are_rejected(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key) as caught:
        Local.model_validate({key: value})
    said = "must be a number (1, 2, ...), { uniform = [least, most] }, or { choices = [number, ...] }"
    assert said in str(caught.value)
