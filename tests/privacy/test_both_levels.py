"""`local.dp` and `phases.N.dp` in one run: two accounts, each what it would be without the other, and both noises."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from rich.console import Console

import rayfl
from rayfl.engine.events import RoundDone
from rayfl.errors import ScenarioError
from rayfl.local.spending import Mechanism
from rayfl.runs.folder import PRIVACY_FILE
from rayfl.streams import stream
from tests.algorithms.scene import SIZES
from tests.engine.scenes import run_on_hosts, tables
from tests.privacy.clients.scenes import DELTA, LOCAL, PEOPLE, central, job, local, phase, target
from tests.privacy.samples.test_accounting import by_opacus

SEED, CLIENTS = 7, 12
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
BERNOULLI = {"bernoulli": 0.5}
SAMPLES: dict[str, Any] = {"noise_multiplier": 3.0, "max_grad_norm": 0.5, "accountant": "rdp"}
TARGET: dict[str, Any] = {"target_epsilon": 6.0, "max_grad_norm": 0.5, "accountant": "rdp"}
PRV = {"accountant": "prv"}
RELAY: dict[str, Any] = {"name": "relay", "schedule": "relay", "algorithm": "fedavg", "cohort": 3}

Phases = list[dict[str, Any]]


Recorded = tuple[dict[str, Any], rayfl.Result, str]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorded]:
    """What `recorded` says of one of the cases, which is run once."""
    return cache(lambda name: recorded(tmp_path_factory.mktemp("case"), CASES[name]))


def trains(dp: dict[str, Any] | None, **options: Any) -> dict[str, Any]:
    """`local` with privacy of samples."""
    return {"local": LOCAL | options | ({"dp": dp} if dp else {})}


CASES: dict[str, Phases] = {
    "fixed": [phase(**trains(SAMPLES | PRV), dp=central(noise_multiplier=5.0))],
    "bernoulli": [phase(**trains(SAMPLES), cohort=BERNOULLI, dp=central())],
    "targets, everybody": [
        phase(**trains(TARGET), cohort=CLIENTS, dp=target(3.0)),
    ],
    "target of clients, fixed": [
        phase(**trains(SAMPLES), dp=target(3.0)),
    ],
    "target of clients, bernoulli": [
        phase(
            **trains(SAMPLES),
            cohort=BERNOULLI,
            dp=target(3.0, clip_norm={"quantile": 0.5}),
        ),
    ],
    "relay": [
        phase(**RELAY, **trains(TARGET), dp=target(5.0, level="local")),
        phase(**trains(SAMPLES | {"noise_multiplier": 4.0}), dp=central(noise_multiplier=8.0)),
    ],
    "scaffold": [
        phase(
            **trains(SAMPLES),
            algorithm={"name": "scaffold", "option": "I"},
            cohort=BERNOULLI,
            dp=central(),
        ),
    ],
}


def without(level: str, phases: Phases) -> Phases:
    """The same phases with the other level alone."""
    if level == "clients":
        return [{key: value for key, value in one.items() if key != "dp"} for one in phases]
    return [one | {"local": {key: value for key, value in one["local"].items() if key != "dp"}} for one in phases]


def recorded(out: Path, phases: Phases) -> Recorded:
    """privacy.json of a run, its result, and what it printed."""
    console = Console(record=True, width=300, file=io.StringIO())
    result = rayfl.run(tables(**PEOPLE, phases=phases), backend="inline", out=out / "runs", console=console)
    return json.loads((result.directory / PRIVACY_FILE).read_text()), result, console.export_text()


def took_part(phases: Phases) -> list[Counter[int]]:
    """By phase, the rounds of each client, drawn from the seed as cohorts are said to be."""
    found, first = [], 1
    for number, one in enumerate(phases):
        counts = Counter[int]()
        for round in range(first, first + one["rounds"]):
            rng = stream(SEED, "cohort", number, round)
            if isinstance(one["cohort"], int):
                counts.update(map(int, rng.choice(CLIENTS, one["cohort"], replace=False)))
            else:
                counts.update(map(int, np.flatnonzero(rng.random(CLIENTS) < one["cohort"]["bernoulli"])))
        found.append(counts)
        first += one["rounds"]
    return found


def samples_by_opacus(phases: Phases, noises: list[float], queries: int = 0) -> dict[int, float]:
    """Every client's epsilon: three steps of batches of 4 a round, and queries of all samples."""
    found = {}
    for client, size in enumerate(SIZES):
        history = []
        for counts, noise in zip(took_part(phases), noises, strict=True):
            steps = min(3, math.ceil(size / 4))
            history += [(noise, min(1.0, 4 / size), steps * counts[client]), (noise, 1.0, queries * counts[client])]
        history = [each for each in history if each[2]]
        found[client] = by_opacus(phases[0]["local"]["dp"]["accountant"], history) if history else 0.0
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_account_is_that_of_the_run_with_its_level_alone(
    name: str, case: Callable[[str], Recorded], tmp_path: Path
) -> None:
    phases = CASES[name]
    both, result, _ = case(name)
    samples, of_samples, _ = recorded(tmp_path, without("clients", phases))
    clients, of_clients, _ = recorded(tmp_path, without("samples", phases))
    assert both.keys() == {"samples", "clients"}
    assert samples.keys() == {"samples"}
    assert clients.keys() == {"clients"}
    assert both["samples"] == samples["samples"]
    said = {"public", "not_covered"}  # what the account of samples tells
    assert {key: value for key, value in both["clients"].items() if key not in said} == {
        key: value for key, value in clients["clients"].items() if key not in said
    }
    assert result.metrics["epsilon"] == of_samples.metrics["epsilon"]
    assert result.metrics["client_epsilon"] == of_clients.metrics["client_epsilon"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_samples_cost_what_opacus_says_whatever_hides_their_clients(name: str, case: Callable[[str], Recorded]) -> None:
    phases = CASES[name]
    content, _, printed = case(name)
    noises = [each["noise_multiplier"] for each in content["samples"]["phases"]]
    epsilons = samples_by_opacus(phases, noises, queries=1 if name == "scaffold" else 0)
    found = content["samples"]["epsilon"]["maximum"]
    assert found == pytest.approx(max(epsilons.values()), abs=1e-9)
    if "targets" in name:
        assert 0.98 * 6 <= found <= 6
    of_clients, unit = content["clients"]["epsilon"], content["clients"]["relation"]
    assert f"privacy: example-level epsilon {found:.4g}" in printed
    assert f"privacy: client-level epsilon {of_clients:.4g} ({unit}), delta 0.065, after round" in printed
    assert printed.count("; details in privacy.json") == 2


@pytest.mark.slow
def test_clients_cost_what_dp_accounting_says_whatever_hides_their_samples(case: Callable[[str], Recorded]) -> None:
    def account(name: str) -> tuple[dict[str, Any], list[float]]:
        said = case(name)[0]["clients"]
        return said, [each["noise_multiplier"] for each in said["phases"]]

    said, (noise,) = account("target of clients, bernoulli")
    exact = PLDAccountant(ADD).compose(PoissonSampledDpEvent(0.5, GaussianDpEvent(noise)), 3).get_epsilon(DELTA)
    assert 0.97 * 3 <= said["epsilon"] <= 3
    assert said["epsilon"] == pytest.approx(exact, abs=0.03)
    said, (noise,) = account("target of clients, fixed")
    fixed = RdpAccountant(neighboring_relation=REPLACE)
    fixed.compose(SampledWithoutReplacementDpEvent(12, 4, GaussianDpEvent(noise / 2)), 3)
    assert 0.97 * 3 <= said["epsilon"] <= 3
    assert said["epsilon"] == pytest.approx(fixed.get_epsilon(DELTA), rel=0.01)
    said, (hop, noise) = account("relay")
    most = max(took_part(CASES["relay"])[0].values())
    together = RdpAccountant(neighboring_relation=REPLACE)
    together.compose(GaussianDpEvent(hop / 2), most)
    together.compose(SampledWithoutReplacementDpEvent(12, 4, GaussianDpEvent(noise / 2)), 3)
    known = PLDAccountant(ADD).compose(GaussianDpEvent(hop / 2), most).compose(GaussianDpEvent(noise / 2), 3)
    least = min(together.get_epsilon(DELTA), known.get_epsilon(DELTA))  # if all took part, it would be the latter
    assert said["epsilon"] == pytest.approx(least, rel=0.01)


@pytest.mark.slow
def test_rounds_without_participants_cost_clients_something_and_samples_nothing(tmp_path: Path) -> None:
    rare = [phase(**trains(SAMPLES), rounds=12, cohort={"bernoulli": 0.1}, dp=central())]
    content, _, _ = recorded(tmp_path, rare)
    _, events = run_on_hosts(job(*rare), 2)
    taken = [event.client_updates for event in events if isinstance(event, RoundDone)]
    assert 0 in taken
    assert sum(taken) == sum(took_part(rare)[0].values())
    assert content["samples"]["epsilon"]["maximum"] == pytest.approx(
        max(samples_by_opacus(rare, [3.0]).values()), abs=1e-9
    )
    exact = PLDAccountant(ADD).compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(1.0)), 12).get_epsilon(DELTA)
    assert content["clients"]["epsilon"] == pytest.approx(exact, abs=0.03)


@pytest.mark.slow
def test_a_level_that_one_phase_lacks_has_no_guarantee_and_the_other_keeps_its_own(tmp_path: Path) -> None:
    first, second = CASES["relay"]
    open_relay = [{key: value for key, value in first.items() if key != "dp"}, second]
    content, result, printed = recorded(tmp_path, open_relay)
    assert content["clients"]["epsilon"] == "infinite"
    assert content["clients"]["phases_without_client_privacy"] == ["relay"]
    noises = [each["noise_multiplier"] for each in content["samples"]["phases"]]
    expected = max(samples_by_opacus(open_relay, noises).values())
    assert content["samples"]["epsilon"]["maximum"] == pytest.approx(expected, abs=1e-9)
    assert "privacy: client-level, delta 0.065; no guarantee for the run: relay without dp" in printed
    bare = [first | trains(SAMPLES | {"noise_multiplier": 0.0}), second]
    content, _, printed = recorded(tmp_path, bare)
    assert content["samples"]["epsilon"]["maximum"] == "infinite"
    assert content["clients"]["epsilon"] == recorded(tmp_path, without("samples", bare))[0]["clients"]["epsilon"]
    assert math.isfinite(content["clients"]["epsilon"])
    assert result.metrics["epsilon"][-1].as_py() == pytest.approx(expected, abs=1e-9)


WIDE = {"noise_multiplier": 0.0, "clip_norm": 50.0}
UNBOUNDED = {"noise_multiplier": 0.0, "max_grad_norm": float("inf")}


def moved(phases: Phases) -> np.ndarray:
    made = job(*phases)
    change: np.ndarray = run_on_hosts(made, 1)[0] - made.initial_models[0].vector
    return change


@pytest.mark.parametrize("where", [{"dp": central()}, {"dp": local()}, RELAY | {"dp": local()}], ids=str)
def test_neither_level_changes_what_the_other_does_to_the_model(where: dict[str, Any]) -> None:
    given = phase(**where)
    samples = [given | trains(SAMPLES) | {"dp": given["dp"] | WIDE}]
    np.testing.assert_allclose(moved(samples), moved(without("clients", samples)), atol=1e-6)
    full = {"batch_size": "full", "epochs": 3}
    clients = [given | trains(UNBOUNDED, **full)]
    np.testing.assert_allclose(moved(clients), moved(without("samples", clients)), atol=1e-6)


def test_answers_are_clipped_after_the_noise_of_the_samples() -> None:
    """Noise of samples may make a change as long as it likes; a client counts for clip_norm."""
    loud = {"noise_multiplier": 1e4, "max_grad_norm": 1.0}
    one = [phase(**trains(loud), rounds=1, cohort=1, dp=central(noise_multiplier=0.0, clip_norm=0.3))]
    assert np.linalg.norm(moved(one)) == pytest.approx(0.3, rel=1e-4)


@pytest.mark.slow
def test_the_noise_that_a_target_of_samples_takes_is_named_as_public(
    case: Callable[[str], Recorded], tmp_path: Path
) -> None:
    assert "local.dp.target_epsilon" in case("targets, everybody")[0]["clients"]["public"]
    said = case("fixed")[0]["clients"]
    assert "local.dp.target_epsilon" not in said["public"]
    assert any("clients' sizes and the cohorts" in each for each in said["not_covered"])
    alone = recorded(tmp_path, without("samples", CASES["fixed"]))[0]["clients"]
    assert not any("sizes" in each for each in alone["not_covered"])


# Cohorts of the operating system's, which nobody knows before the run

SECURE = central(secure=True)


@pytest.mark.slow
@pytest.mark.parametrize("cohort", [4, BERNOULLI], ids=["fixed", "bernoulli"])
def test_spending_of_secret_cohorts_is_booked_as_it_happens(cohort: Any) -> None:
    secret = job(phase(**trains(SAMPLES), rounds=6, cohort=cohort, dp=SECURE))
    rounds = [event for event in run_on_hosts(secret, 2)[1] if isinstance(event, RoundDone)]
    assert [len(event.spent) for event in rounds] == [event.client_updates for event in rounds]
    taken = Counter(client for event in rounds for client in event.spent)
    for event in rounds:
        for client in event.spent:
            size = SIZES[client]
            assert event.spent[client] == {Mechanism(3.0, min(1.0, 4 / size)): min(3, math.ceil(size / 4))}
    (planned,) = secret.spending.epsilons.values()
    steps = {size: min(3, math.ceil(size / 4)) for size in SIZES}
    spent = [by_opacus("rdp", [(3.0, min(1.0, 4 / SIZES[c]), steps[SIZES[c]] * times)]) for c, times in taken.items()]
    assert planned is not None
    assert max(spent) <= planned
    always = [by_opacus("rdp", [(3.0, min(1.0, 4 / size), 6 * steps[size])]) for size in SIZES]
    assert planned == pytest.approx(max(always), abs=1e-9)


@pytest.mark.slow
def test_the_records_of_secret_cohorts_have_the_epsilon_of_who_took_part(tmp_path: Path) -> None:
    content, result, _ = recorded(tmp_path, [phase(**trains(SAMPLES), rounds=6, cohort=BERNOULLI, dp=SECURE)])
    assert not content["clients"]["simulated"]
    assert "simulated" in content["samples"]["randomness"]
    of_rounds = {
        rounds: {by_opacus("rdp", [(3.0, min(1.0, 4 / n), rounds * min(3, math.ceil(n / 4)))]) for n in SIZES}
        for rounds in range(1, 7)
    }
    found = content["samples"]["epsilon"]["maximum"]
    assert any(abs(found - one) < 1e-9 for each in of_rounds.values() for one in each)
    assert result.metrics["epsilon"][-1].as_py() == found


@pytest.mark.parametrize("secure", [False, True], ids=["seeded", "secure"])
@pytest.mark.parametrize("cohort", [4, 0.25, {"bernoulli": 0.5}], ids=str)
def test_a_target_of_samples_would_tell_how_often_clients_take_part_in_hidden_cohorts(
    cohort: Any, secure: bool
) -> None:
    hidden = phase(**trains(TARGET), cohort=cohort, dp=central(secure=secure))
    said = r"phases\.hidden\.local\.dp\.target_epsilon: .*phases\.hidden\.dp hides; give noise_multiplier"
    with pytest.raises(ScenarioError, match=said) as caught:
        job(hidden)
    assert "\n" not in str(caught.value)
    before = phase(**trains(SAMPLES), cohort=cohort, dp=central(secure=secure))
    everybody = {"bernoulli": 1.0} if isinstance(cohort, dict) else CLIENTS
    wide = trains(TARGET | {"target_epsilon": 30.0})
    after = phase(name="after", **wide, cohort=everybody, dp=central(secure=secure))
    with pytest.raises(ScenarioError, match=r"phases\.after\.local\.dp\.target_epsilon: .*phases\.hidden\.dp hides"):
        job(before, after)
    assert len(job(after | trains(TARGET), before).spending.epsilons) == 2


@pytest.mark.parametrize("secure", [False, True], ids=["seeded", "secure"])
@pytest.mark.parametrize(
    "changes", [{"cohort": CLIENTS}, {"cohort": {"explicit": [[0, 1], [2]]}}, {"dp": local()}], ids=str
)
def test_a_target_of_samples_goes_where_cohorts_are_known(changes: dict[str, Any], secure: bool) -> None:
    dp = changes.get("dp", central()) | {"secure": secure}
    (planned,) = job(phase(**trains(TARGET), **changes | {"dp": dp})).spending.epsilons.values()
    assert planned is not None
    assert 0.98 * 6 <= planned <= 6


@pytest.mark.parametrize("where", [{"dp": central()}, {"dp": SECURE}, RELAY | {"dp": local()}], ids=str)
@pytest.mark.parametrize("when", ["leave_out", "stop"])
def test_a_budget_of_samples_would_tell_of_clients(where: dict[str, Any], when: str) -> None:
    budget = SAMPLES | {"max_epsilon": 20.0, "accountant": "rdp", "when_spent": when}
    with pytest.raises(
        ScenarioError, match=r"local\.dp\.max_epsilon: the clients that it leaves out, .*dp hides; leave it out, or"
    ):
        job(phase(**where, **trains(budget)))
