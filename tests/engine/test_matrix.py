"""Every pair of algorithm, schedule, hosts, privacy, state, participation and resume: the same bits, or refused.

The cases are generated over the registries: a new algorithm or schedule joins by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.algorithms import algorithms
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.engine.plan.cohort import cohort_of
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.scenario_checks import check_rounds, check_scenario
from rayfl.engine.plan.symbolic_rounds import trace_phase
from rayfl.engine.plan.trace import Trace
from rayfl.engine.schedules.schedule import schedules
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import split
from rayfl.runs.preparation import prepare
from tests.algorithms.reference import PlainUpdate, Vector, assert_equal, linear, mean, sizes
from tests.algorithms.scene import SEED, SIZES, Setting, supported
from tests.engine.all_pairs import Case, Pair, all_pairs, pairs_of
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, run_on_hosts, snapshot_of, without_clock
from tests.views_scene import VIEWS

NO_DATA = Path("no-data-here")
ROUNDS = 2
LOCAL = {"epochs": 1, "batch_size": 6, "lr": 0.3, "momentum": 0.6}

SCENES: dict[str, dict[str, Any]] = {
    "fedbn": {"model": "tests.algorithms.test_buffers:NormNet"},
    "orchestra": {
        "data": {"name": "tests.algorithms.test_orchestra:images", "partition": "natural", "views": VIEWS},
        "model": {"name": "orchestra", "network": "tests.views_scene:Encoder", "width": 4, "clusters": 5},
        "task": {"name": "orchestra", "memory": 12},
    },
}
"""Where an algorithm does not train any network on any task."""

OPTIONS: dict[str, dict[str, Any]] = {"orchestra": {"local_clusters": 3}}

PHASES: dict[str, dict[str, Any]] = {
    "parallel": {"cohort": 4},
    "relay": {"cohort": 3},
    "buffered": {"concurrency": 4, "buffer": 2},
    "asynchronous": {"concurrency": 3},
}
"""What a schedule needs."""

SAMPLES = {"local": {"dp": {"noise_multiplier": 1.0, "max_grad_norm": 0.5, "accountant": "rdp"}}}
CLIENTS = {"dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": 0.3, "delta": 0.01}}
PRIVACY: dict[str, dict[str, Any]] = {"none": {}, "samples": SAMPLES, "clients": CLIENTS, "both": SAMPLES | CLIENTS}
STATE: dict[str, dict[str, Any]] = {
    "the algorithm's": {},
    "kept by clients": {"transforms": [{"name": "top_k", "share": 0.3}], "eval_model": "all"},
    "kept by the server": {"eval_model": "ema"},
}
PARTICIPATION: dict[str, dict[str, Any]] = {
    "all": {},
    "by the clock": {"steps_per_s": {"lognormal": [2, 1.0]}, "up_bytes_per_s": {"uniform": [50, 500]}},
    "unreliable": {"dropout": 0.2, "availability": 0.8},
}
FACTORS: dict[str, list[Any]] = {
    "algorithm": list(algorithms),
    "schedule": list(schedules),
    "participation": list(PARTICIPATION),
    "privacy": list(PRIVACY),
    "state": list(STATE),
    "clients at once": [1, 3],
    "hosts": [2, 3],
    "rounds ahead": [0, 2],
    "resumed": [True, False],
}
NAMES = {
    "algorithm": (".algorithm", "'{}'", "BatchNorm"),
    "schedule": (
        "schedule",
        " a {}",
        "be asynchronous",
        "parallel phase",
        "no phase trains clients",
        "train one client after",
    ),
    "participation": ("participation", "clock"),
    "privacy": ("dp",),
    "state": ("transforms", "eval_model", "residual"),
    "clients at once": ("clients_at_once",),
}
"""How a refusal may name a factor, in which {} is its value."""

REFUSED: dict[tuple[str, str], dict[Any, list[Any]]] = {
    ("schedule", "participation"): {
        "buffered": ["all", "unreliable"],
        "asynchronous": ["all", "unreliable"],
        "central": ["by the clock", "unreliable"],
    },
    ("schedule", "privacy"): {
        "buffered": ["samples", "clients", "both"],
        "asynchronous": ["samples", "clients", "both"],
        "local": ["clients", "both"],
        "central": ["clients", "both"],
    },
    ("schedule", "state"): {
        "relay": ["kept by clients", "kept by the server"],
        "buffered": ["kept by clients"],
        "asynchronous": ["kept by clients"],
        "local": ["kept by clients", "kept by the server"],
        "central": ["kept by clients", "kept by the server"],
    },
    ("schedule", "clients at once"): {"relay": [3], "asynchronous": [3], "local": [3], "central": [3]},
    ("privacy", "state"): {"clients": ["kept by clients"], "both": ["kept by clients"]},
    ("privacy", "clients at once"): {"samples": [3], "both": [3]},
}
"""The pairs that are refused whatever the algorithm."""


def scenario_of(case: Case) -> Scenario:
    name, clients = case["algorithm"], "dp" in PRIVACY[case["privacy"]]
    algorithm = {"name": name} | OPTIONS.get(name, {})
    if clients and "weighting" in algorithms.resolve(name).model_fields:
        algorithm["weighting"] = "uniform"
    private = copy.deepcopy(PRIVACY[case["privacy"]])
    if clients and case["schedule"] == "relay":
        private["dp"]["level"] = "local"  # the only one of a relay
    whole = {"batch_size": "full"} if name == "fedbn" else {}  # no batch of a single sample
    local = supported(algorithm, LOCAL | whole) | private.pop("local", {})
    phase = {"name": "p", "schedule": case["schedule"], "rounds": ROUNDS, "algorithm": algorithm, "local": local}
    cohort = {"cohort": 2} if name == "orchestra" and case["schedule"] in ("parallel", "relay") else {}
    tables: dict[str, Any] = {
        "seed": SEED,
        "data": {"name": "tests.algorithms.scene:people"},
        "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.0 if has_plain(case) else 0.3},
        **SCENES.get(name, {}),
        "phases": [phase | PHASES.get(case["schedule"], {}) | cohort | private | STATE[case["state"]]],
        "evaluation": {"every": 2},
        "numerics": {"clients_at_once": case["clients at once"]},
    }
    participation = PARTICIPATION[case["participation"]]
    return Scenario.from_tables(tables | ({"participation": participation} if participation else {}))


@cache
def _refusal(*values: Any) -> str | None:
    case = dict(zip(NAMES, values, strict=True))
    try:
        scenario = scenario_of(case)
        plans = check_scenario(scenario)
        if case["algorithm"] in SCENES:
            prepare(scenario, NO_DATA)
        else:
            key = case["algorithm"], case["schedule"], case["privacy"]
            TRACES[key] = TRACES.get(key) or _trace(plans[0])
            check_rounds(scenario, [plans[0].with_facts(trace=TRACES[key])])
    except ScenarioError as error:
        return str(error)
    return None


TRACES: dict[tuple[str, str, str], Trace] = {}
"""By algorithm, schedule and privacy: nothing else changes what rounds exchange."""


def _trace(plan: PhasePlan) -> Trace:
    run, model = network()
    return trace_phase(plan, model, run.result)


@cache
def network() -> tuple[RunPlan, FlatModel]:
    """A network on which rounds are traced."""
    usual = {factor: values[0] for factor, values in FACTORS.items()}
    return prepare(scenario_of(usual), NO_DATA)


def refusal_of(case: Case) -> str | None:
    """What rayfl says against a case; hosts and the like change nothing about it."""
    return _refusal(*(case[factor] for factor in NAMES))


@cache
def matrix() -> tuple[list[Case], dict[Pair, list[Case]]]:
    return all_pairs(FACTORS, lambda case: refusal_of(case) is None)


def chain(setting: Setting, cohorts: list[list[int]]) -> Vector:
    """A relay: every client goes on from the model of the one before."""
    w = setting.initial()
    for round, cohort in enumerate(cohorts, start=1):
        for client in cohort:
            w = PlainUpdate(setting, client, round).sgd(w)
    return w


def averaged(setting: Setting, cohorts: list[list[int]], mu: float = 0.0) -> Vector:
    """FedAvg, or FedProx."""
    w = setting.initial()
    for round, cohort in enumerate(cohorts, start=1):
        updates = [PlainUpdate(setting, client, round) for client in cohort]
        pull = linear(torch.zeros(()), mu, w) if mu else None
        w = w + mean([update.sgd(w, penalty=pull) - w for update in updates], sizes(updates))
    return w


PLAIN = {
    ("fedavg", "parallel"): averaged,
    ("fedprox", "parallel"): lambda setting, cohorts: averaged(setting, cohorts, 0.01),
    ("fedavg", "relay"): chain,
    ("fednova", "relay"): chain,
}


def has_plain(case: Case) -> bool:
    """Whether there is a plain computation of a case's model."""
    usual = case["privacy"] == "none" and case["state"] == "the algorithm's" and case["participation"] != "unreliable"
    return usual and (case["algorithm"], case["schedule"]) in PLAIN


def later(kind: type[RoundDone] | type[Evaluated], events: Iterable[Event], after: int) -> str:
    """Evaluations overlap with later rounds, so the order of events may differ, not their content."""
    return repr(without_clock([event for event in events if isinstance(event, kind) and event.round > after]))


def run_as(case: Case, job: RunPlan) -> tuple[np.ndarray, list[Event]]:
    """On the case's hosts; a run that is resumed goes on from its first round on one host more."""
    scheduler, server = cast(job, case["hosts"])
    scheduler._backend.rounds_ahead = case["rounds ahead"]  # type: ignore[misc]
    if case["resumed"]:
        store, events = MemoryStore(), scheduler.run()
        next(event for event in events if isinstance(event, RoundDone))
        snapshot = snapshot_of(scheduler, store)
        scheduler, server = cast(job, case["hosts"] + 1)
        scheduler.restore(snapshot, store)
    told = list(scheduler.run())
    return split(server.committed()[1])[0], told


@pytest.fixture(autouse=True)
def few_steps_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orchestra's server takes five hundred."""
    monkeypatch.setattr("rayfl.algorithms.orchestra.STEPS", 20)


@pytest.mark.takes("the first case imports what all share")
@pytest.mark.parametrize("algorithm", list(algorithms))
def test_a_case_has_the_bits_of_one_host_and_of_an_uninterrupted_run(algorithm: str) -> None:
    cases = [case for case in matrix()[0] if case["algorithm"] == algorithm]
    assert cases, "no case at all is accepted: give the algorithm a scene of its own"
    for case in cases:
        job, _ = prepare(scenario_of(case), NO_DATA)
        whole, events = run_on_hosts(job, 1)
        found, told = run_as(case, job)
        assert np.array_equal(found, whole), case
        assert later(RoundDone, told, case["resumed"]) == later(RoundDone, events, case["resumed"]), case
        assert later(Evaluated, told, 0) == later(Evaluated, events, 0), case
        assert np.array_equal(whole, job.result.initial.vector) == (case["schedule"] == "local"), case


@pytest.mark.parametrize(("algorithm", "schedule"), list(PLAIN))
def test_a_case_has_the_model_of_a_plain_computation(algorithm: str, schedule: str) -> None:
    case = {factor: values[0] for factor, values in FACTORS.items()} | {"algorithm": algorithm, "schedule": schedule}
    job, model = prepare(scenario_of(case), NO_DATA)
    phase, setting = job.scenario.phases[0], Setting(local=LOCAL)
    indices = [RoundIndex(0, round, round) for round in range(1, ROUNDS + 1)]
    expected = PLAIN[algorithm, schedule](
        setting, [cohort_of(phase, SEED, index, np.array(SIZES)) for index in indices]
    )
    found = model.state_dict(torch.from_numpy(run_as(case, job)[0]))
    assert_equal(torch.cat([part.flatten() for part in found.values()]).double(), expected, setting)


def test_a_refusal_names_both_keys() -> None:
    def named(case: Case, pair: Pair) -> bool:
        said = refusal_of(case) or ""
        return all(any(name.format(value) in said for name in NAMES[factor]) for factor, value in pair)

    refused = matrix()[1]
    assert [pair for pair, tried in refused.items() if not any(named(case, pair) for case in tried)] == []


def test_other_pairs_are_refused_only_with_some_algorithm() -> None:
    found = {pair for pair in matrix()[1] if "algorithm" not in dict(pair)}
    assert found == {
        ((one, value), (other, refused))
        for (one, other), table in REFUSED.items()
        for value, all_refused in table.items()
        for refused in all_refused
    }


def test_the_cases_have_every_pair_but_those_that_are_refused() -> None:
    cases, refused = matrix()
    covered = set().union(*map(pairs_of, cases))
    assert not covered & refused.keys()
    valued = [[(factor, value) for value in values] for factor, values in FACTORS.items()]
    assert covered | refused.keys() == {pair for two in combinations(valued, 2) for pair in product(*two)}
