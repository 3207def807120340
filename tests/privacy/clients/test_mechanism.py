"""What a round with client-level privacy releases: bounded, noised, and the same on any number of hosts."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rayfl.algorithms import algorithms
from rayfl.algorithms.exchange import Answer, Answers, Released
from rayfl.algorithms.server_state import ServerState
from rayfl.config.privacy import Quantile
from rayfl.config.scenario import Scenario
from rayfl.engine.events import RoundDone
from rayfl.engine.exact_sum import ExactSum, combine
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.local.context import ClientStreams
from rayfl.models.tensors import split
from rayfl.privacy.clients.mechanism import BELOW, CLIP_NORM, ClientMechanism, hide_answer, lattice_of, noised
from rayfl.streams import stream
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, run_on_hosts, snapshot_of, without_clock
from tests.privacy.clients.scenes import UNIFORM, central, job, local, phase, target

STREAMS = ClientStreams(1, 0, 1, 0, 5)
BERNOULLI = {"bernoulli": 0.4}
QUANTILE = {"quantile": 0.5, "noise_multiplier": 4.0}
RELAY: dict[str, Any] = {"schedule": "relay", "algorithm": "fedavg"}

ALGORITHMS: list[dict[str, Any]] = [
    {"algorithm": UNIFORM},
    {"algorithm": {"name": "fedadam", "weighting": "uniform"}},
    {"algorithm": {"name": "fedprox", "weighting": "uniform"}},
    {"algorithm": {"name": "moon", "weighting": "uniform"}},
    {"algorithm": "scaffold"},
    {"algorithm": {"name": "scaffold", "option": "I", "correction": "step"}, "eval_model": "participants"},
    {"algorithm": "feddyn"},
    {"algorithm": "fedexp"},
    {"algorithm": {"name": "ditto", "weighting": "uniform"}},
    {"algorithm": "fedbabu"},
    {"algorithm": "perfedavg"},
    {"algorithm": {"name": "fedmeta", "variant": "meta_sgd"}, "local": {"lr": 0.3}},
]
NAMES = [str(one["algorithm"]) for one in ALGORITHMS]
INHERITED = [{"name": name, "weighting": "uniform"} for name in ("fedadam", "fedprox", "moon")]
"""Algorithms that release what FedAvg does."""


def mechanism(**changes: Any) -> ClientMechanism:
    made = ClientMechanism("central", 1.0, 1.0, None, None, ((0, 5), (8, 10)), Released({"delta": "model"}))
    return replace(made, **changes)


def server(length: int = 16) -> ServerState:
    return ServerState(np.zeros(length, np.float32), length, 12, declared={CLIP_NORM: "phase"})


def model_of(of: RunPlan, hosts: int = 1) -> np.ndarray:
    return run_on_hosts(of, hosts)[0]


def outcome(of: RunPlan) -> tuple[np.ndarray, list[int]]:
    """The final model, and the sizes of the cohorts."""
    model, events = run_on_hosts(of, 1)
    return model, [event.client_updates for event in events if isinstance(event, RoundDone)]


# Bounds


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
    st.floats(1e-3, 1e3),
    st.floats(1e-4, 1e4),
    st.integers(4, 40),
)
def test_one_client_more_changes_the_exact_sums_by_the_bound_at_most(
    cohort: list[int], further: int, clip_norm: float, scale: float, bits: int
) -> None:
    how = mechanism(released=Released({"delta": "model"}, {"control": "params"}), fraction_bits=bits)

    def summed(clients: list[int]) -> list[np.ndarray]:
        sums = [ExactSum("delta", bits), ExactSum("control", bits)]
        for seed in clients:
            rng = np.random.default_rng(seed)
            vectors = [torch.from_numpy((scale * rng.normal(size=16)).astype(np.float32)) for _ in sums]
            answer = Answer(delta=vectors[0], sums={"control": vectors[1]})
            hide_answer(how, answer, clip_norm, 16, STREAMS)
            for total, vector in zip(sums, (answer.values["delta"], answer.sums["control"]), strict=True):
                total.add(vector, answer.weight)
        return [combine("sum", [total.partial()], bits) for total in sums]

    before, after = summed(cohort), summed([*cohort, further])
    distance = math.sqrt(sum(float(np.square(b - a).sum()) for a, b in zip(before, after, strict=True)))
    assert distance <= how.bound(clip_norm)
    replaced = summed([*cohort[:-1], further])
    distance = math.sqrt(sum(float(np.square(b - a).sum()) for a, b in zip(before, replaced, strict=True)))
    assert distance <= 2 * how.bound(clip_norm)


def test_an_answer_within_the_bound_is_left_alone_and_a_longer_one_keeps_its_direction() -> None:
    inside = torch.zeros(16)
    inside[:3] = torch.tensor([0.3, -0.4, 0.5])
    answer = Answer(delta=inside)
    hide_answer(mechanism(), answer, 1.0, 16, STREAMS)
    assert torch.equal(answer.values["delta"], inside)
    longer = Answer(delta=10 * inside)
    hide_answer(mechanism(), longer, 1.0, 16, STREAMS)
    torch.testing.assert_close(longer.values["delta"], inside / inside.norm(), rtol=1e-6, atol=0)


def test_frozen_parameters_are_neither_released_nor_noised() -> None:
    answer = Answer(delta=torch.ones(16))
    hide_answer(mechanism(level="local"), answer, 100.0, 16, STREAMS)
    outside = [5, 6, 7, *range(10, 16)]
    assert not answer.values["delta"][outside].any()
    assert (answer.values["delta"][[0, 4, 8, 9]] != 1).all()
    released = noised(mechanism(), server(), None, np.random.default_rng(1))
    assert not released.totals["delta"][outside].any()


def test_modules_that_are_frozen_keep_their_values() -> None:
    head = job(phase(train=["read_out"], dp=central()))
    before, after = head.initial_models[0].vector, model_of(head)
    changed = {slot.name for slot in head.initial_models[0].layout if (before != after)[slot.offset : slot.end].any()}
    assert changed == {"read_out.weight", "read_out.bias"}


# Noise


@pytest.mark.parametrize("secure", [False, True])
def test_noise_has_the_scale_that_the_account_assumes(secure: bool) -> None:
    number, multiplier, clip_norm = 200_000, 1.7, 0.3
    how = mechanism(noise_multiplier=multiplier, clip_norm=clip_norm, changing=((0, number),), secure=secure)
    value = 2.5 if not secure else 2.5 // lattice_of(how, clip_norm).step
    exact = Answers(4, 4.0, {"delta": np.full(number, value)}, {})
    found = noised(how, server(number), exact, np.random.default_rng(2)).totals["delta"] - 2.5
    scale = multiplier * (clip_norm + math.sqrt(number) * 2.0**-33)
    assert found.std() == pytest.approx(scale, rel=6 / math.sqrt(2 * number))
    assert abs(found.mean()) < 6 * scale / math.sqrt(number)
    share_within = np.mean(np.abs(found) < scale)
    assert share_within == pytest.approx(0.6827, abs=6 * math.sqrt(0.22 / number))


def test_clients_noise_has_the_scale_that_the_account_assumes() -> None:
    number = 100_000
    how = mechanism(level="local", noise_multiplier=2.0, changing=((0, number),))
    answer = Answer(delta=torch.zeros(number))
    hide_answer(how, answer, 0.5, number, STREAMS)
    assert float(answer.values["delta"].std()) == pytest.approx(1.0, rel=6 / math.sqrt(2 * number))
    other = Answer(delta=torch.zeros(number))
    hide_answer(how, other, 0.5, number, replace(STREAMS, client=6))
    assert not (answer.values["delta"] == other.values["delta"]).any()


def test_the_server_adds_its_stream_to_the_sum_and_divides_by_the_fixed_number() -> None:
    noisy, exact = (job(phase(rounds=1, cohort=BERNOULLI, dp=central(noise_multiplier=noise))) for noise in (2.0, 0.0))
    how = noisy.phases[0].hiding
    assert how is not None
    assert how is not None
    draws, expected = stream(7, "dp noise", 0, 1), np.zeros(len(noisy.initial_models[0].vector))
    for start, stop in how.changing:
        expected[start:stop] = 2 * how.bound(0.3) * draws.standard_normal(stop - start) / (0.4 * 12)
    np.testing.assert_allclose(model_of(noisy) - model_of(exact), expected, atol=1e-6)


def test_a_round_without_clients_is_noise_alone() -> None:
    empty = job(phase(rounds=2, cohort={"bernoulli": 1e-9}, dp=central()))
    model, events = run_on_hosts(empty, 2)
    assert [event.client_updates for event in events if isinstance(event, RoundDone)] == [0, 0]
    how = empty.phases[0].hiding
    assert how is not None
    assert how is not None
    change = (model - empty.initial_models[0].vector)[[place for a, b in how.changing for place in range(a, b)]]
    scale = math.sqrt(2) * how.bound(0.3) / (1e-9 * 12)
    assert change.std() == pytest.approx(scale, rel=6 / math.sqrt(2 * len(change)))


@pytest.mark.parametrize(
    ("changes", "dp"),
    [  # whatever declares its own releases at the server, and two of them at the clients
        *((changes, central()) for changes in ALGORITHMS if changes["algorithm"] not in INHERITED),
        (ALGORITHMS[0], local()),
        (ALGORITHMS[5], local()),
    ],
    ids=lambda value: str(value.get("algorithm", value.get("level"))),
)
def test_without_noise_and_with_a_wide_bound_it_is_the_run_without_privacy(
    changes: dict[str, Any], dp: dict[str, Any]
) -> None:
    plain = phase(**changes, rounds=2)
    wide = plain | {"dp": dp | {"noise_multiplier": 0.0, "clip_norm": 50.0}}
    np.testing.assert_allclose(model_of(job(wide)), model_of(job(plain)), atol=1e-6, rtol=1e-5)


def test_a_relay_without_noise_and_with_a_wide_bound_is_the_relay_without_privacy() -> None:
    plain = phase(**RELAY)
    wide = plain | {"dp": local(noise_multiplier=0.0, clip_norm=50.0)}
    np.testing.assert_allclose(model_of(job(wide)), model_of(job(plain)), atol=1e-6)


def test_a_hop_of_a_relay_moves_the_model_by_the_bound_at_most_and_noise_comes_on_top() -> None:
    clipped = job(phase(**RELAY, rounds=1, cohort=1, dp=local(noise_multiplier=0.0, clip_norm=0.01)))
    start = clipped.initial_models[0].vector
    without = model_of(clipped) - start
    assert np.linalg.norm(without) == pytest.approx(0.01, rel=1e-4)
    noisy = model_of(job(phase(**RELAY, rounds=1, cohort=1, dp=local(noise_multiplier=3.0, clip_norm=0.01)))) - start
    how = clipped.phases[0].hiding
    assert how is not None
    assert how is not None
    noise = (noisy - without)[[place for a, b in how.changing for place in range(a, b)]]
    assert noise.std() == pytest.approx(0.03, rel=6 / math.sqrt(2 * len(noise)))


def test_fedexp_releases_a_norm_that_fits_the_bound_together_with_the_change() -> None:
    """eta_g from clipped changes is that of the paper, where noise is left out."""
    tight = job(phase(rounds=1, algorithm="fedexp", eval_model="global", dp=central(noise_multiplier=0, clip_norm=0.1)))
    plain = job(phase(rounds=1, algorithm=UNIFORM, dp=central(noise_multiplier=0, clip_norm=0.1 / math.sqrt(2))))
    model, events = run_on_hosts(tight, 1)
    mean = model_of(plain) - plain.initial_models[0].vector
    (done,) = (event for event in events if isinstance(event, RoundDone))
    # every change is longer than the bound here, so that the mean of squared norms is that of the bound
    expected = max(1.0, (0.1**2 / 2) / (2 * (np.linalg.norm(mean) ** 2 + 1e-3)))
    assert done.scalars["server_step"] == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(model - plain.initial_models[0].vector, expected * mean, atol=1e-6)


# The bound that follows a quantile


def test_vectors_and_count_together_have_the_noise_multiplier_of_the_account() -> None:
    """Andrew et al., theorem 1: z_delta = (z^-2 - (2 sigma_b)^-2)^(-1/2), sigma_b the count's standard deviation."""
    how = mechanism(noise_multiplier=1.2, quantile=Quantile(quantile=0.5, noise_multiplier=3.0))
    sigma_b = 3.0 / 2
    assert how.vector_noise == pytest.approx((1.2**-2 - (2 * sigma_b) ** -2) ** -0.5)
    assert how.vector_noise**-2 + 3.0**-2 == pytest.approx(1.2**-2)


def test_the_count_of_clients_below_the_bound_is_noised_by_half_its_multiplier() -> None:
    how = mechanism(quantile=Quantile(quantile=0.3, noise_multiplier=3.0, lr=0.5))
    exact = Answers(4, 4.0, {"delta": np.zeros(16)}, {BELOW: np.array([1.0])})  # three below, one above
    found = []
    for seed in range(1000):
        state = server()
        noised(how, state, exact, np.random.default_rng(seed))
        found.append(0.3 - math.log(float(state.state[CLIP_NORM][0])) / 0.5)
    assert np.mean(found) == pytest.approx(0.75, abs=6 * 1.5 / 4 / math.sqrt(1000))
    assert np.std(found) == pytest.approx(1.5 / 4, rel=6 / math.sqrt(2000))


@pytest.mark.parametrize("quantile", [0.2, 0.9])
def test_the_bound_settles_at_the_quantile_of_the_norms(quantile: float) -> None:
    """Of 200 clients with log-normal norms that do not change, all of whom take part."""
    norms = np.exp(np.random.default_rng(4).normal(size=200))
    how = mechanism(quantile=Quantile(quantile=quantile, noise_multiplier=10.0, initial=0.01))
    state = server()
    for round in range(150):
        bound = float(state.state[CLIP_NORM][0]) if CLIP_NORM in state.state else 0.01
        halves = np.array([np.sum(np.where(norms <= bound, 0.5, -0.5))])
        noised(how, state, Answers(200, 200.0, {"delta": np.zeros(16)}, {BELOW: halves}), np.random.default_rng(round))
    share = np.mean(norms <= float(state.state[CLIP_NORM][0]))
    assert share == pytest.approx(quantile, abs=0.08)


def test_clients_say_whether_they_are_below_the_bound() -> None:
    how = mechanism(quantile=Quantile(quantile=0.5))
    for length, said in ((0.5, 0.5), (2.0, -0.5)):
        answer = Answer(delta=torch.tensor([length] + [0.0] * 15))
        hide_answer(how, answer, 1.0, 16, STREAMS)
        assert answer.sums[BELOW].tolist() == [said]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)
@pytest.mark.slow
def test_the_bound_of_every_algorithm_follows_the_quantile_of_its_norms(algorithm: dict[str, Any]) -> None:
    """Steps are so short that norms hardly change, so that bounds far below and far above them must meet."""
    last = []
    for initial in (0.001, 100.0):
        clip_norm = {"quantile": 0.5, "noise_multiplier": 1e-6, "lr": 1, "initial": initial}
        short = {"local": {"steps": 3, "batch_size": 4, "lr": 0.01}} | algorithm
        dp = central(noise_multiplier=0, clip_norm=clip_norm)
        _, events = run_on_hosts(job(phase(**short, rounds=40, cohort=12, dp=dp)), 1)
        bounds = [event.scalars["clip_norm"] for event in events if isinstance(event, RoundDone)]
        assert (bounds[-1] > bounds[0]) == (initial == 0.001)
        last.append(bounds[-1])
    assert 1 / 3 < last[0] / last[1] < 3


def test_every_algorithm_that_declares_what_it_releases_is_among_those_tried() -> None:
    tried = {one if isinstance(one := each["algorithm"], str) else one["name"] for each in ALGORITHMS}
    declaring = set()
    for name in algorithms:
        kind = algorithms.resolve(name)
        if "releases" in vars(kind):
            declaring.add(kind)
    refused = {algorithms.resolve(name) for name in ("coprefl", "fedbn", "fednova", "orchestra", "qfedavg", "qfedsgd")}
    assert declaring - refused <= {base for name in tried for base in algorithms.resolve(name).__mro__}


def test_a_run_adapts_its_bound_and_reports_it() -> None:
    adapting = job(phase(rounds=6, cohort=8, dp=central(noise_multiplier=0.1, clip_norm=QUANTILE)))
    _, events = run_on_hosts(adapting, 2)
    bounds = [event.scalars["clip_norm"] for event in events if isinstance(event, RoundDone)]
    assert bounds[0] == 0.1
    assert len(set(bounds)) == 6


# The same bits


HIDING: list[dict[str, Any]] = [
    {"dp": central(clip_norm=QUANTILE), "cohort": BERNOULLI, "algorithm": "scaffold"},
    {"dp": central(), "algorithm": "feddyn", "cohort": BERNOULLI},
    {"dp": central(), "algorithm": "fedexp"},
    {"dp": central(), "transforms": [{"name": "top_k", "share": 0.2}]},
    {"dp": local(), "algorithm": "scaffold"},
    {"dp": local(), **RELAY},
]


@pytest.mark.parametrize("changes", HIDING, ids=[str(one["dp"]["level"]) + str(n) for n, one in enumerate(HIDING)])
def test_the_same_bits_on_any_number_of_hosts(changes: dict[str, Any]) -> None:
    hidden = job(phase(**changes))
    model, events = run_on_hosts(hidden, 1)
    other, told = run_on_hosts(hidden, 2)
    assert other.tobytes() == model.tobytes()
    assert without_clock(told) == without_clock(events)


def test_a_run_goes_on_from_a_snapshot_with_the_same_bits() -> None:
    hidden = job(phase(**HIDING[0], rounds=6))
    whole = model_of(hidden)
    scheduler, _ = cast(hidden, 2)
    for event in scheduler.run():
        if isinstance(event, RoundDone) and event.round == 3:
            store = MemoryStore()
            kept = snapshot_of(scheduler, store)
            break
    going_on, going_server = cast(hidden, 3)
    going_on.restore(kept, store)
    assert f"state/{CLIP_NORM}" in store.read(kept.server.latest.stored)
    list(going_on.run())
    assert split(going_server.committed()[1])[0].tobytes() == whole.tobytes()


@pytest.mark.slow
def test_the_resolved_scenario_runs_again_with_the_same_bits() -> None:
    first = job(phase(cohort=BERNOULLI, dp=target(8.0, clip_norm=QUANTILE)))
    again = Scenario.from_tables(tomllib.loads(first.scenario.to_toml()))
    assert again.phases == first.scenario.phases
    second = job(*(tables for tables in tomllib.loads(first.scenario.to_toml())["phases"]))
    assert [plan.hiding for plan in second.phases] == [plan.hiding for plan in first.phases]
    assert second.accounting == first.accounting
    assert model_of(first).tobytes() == model_of(second).tobytes()


def test_secure_noise_and_secure_cohorts_are_never_the_same_again() -> None:
    secure = job(phase(cohort={"bernoulli": 0.5}, rounds=8, dp=central(secure=True)))
    models, sizes = zip(*(outcome(secure) for _ in range(2)), strict=True)
    assert not np.array_equal(*models)
    assert sizes[0] != sizes[1]
