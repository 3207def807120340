"""Settings that would not hide clients, or have no effect, are rejected before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.sampler import CohortSampler, SamplingContext
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.privacy import ClientDP
from rayfl.engine.plan.phase_plan import plan_phases
from rayfl.engine.plan.privacy_checks import check_account
from rayfl.errors import ClientError, RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.models.network import Network
from tests.engine.scenes import run_on_hosts
from tests.privacy.clients.scenes import central, job, local, phase, target

RELAY = {"schedule": "relay", "algorithm": "fedavg"}
FULL = {"steps": 3, "batch_size": "full", "lr": 0.1}


class Normed(Network):
    ordered_modules = ("first", "norm", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first, self.norm, self.read_out = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.read_out(self.norm(self.first(x)))
        return logits


class FirstFew(CohortSampler):
    def cohort_sizes(self, num_clients: int) -> tuple[int, int]:
        return 2, 2

    def draw(self, context: SamplingContext) -> list[int]:
        return [0, 1]


class Telling(Algorithm):
    """Declares one vector and answers as `how` says."""

    how: str = "silent"

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield Exchange(self.tell, server.model, each=self.how == "each")

    def tell(self, client: ClientContext, model: torch.Tensor) -> Answer:
        if self.how == "weight":
            return Answer(2.0, told=model)
        if self.how == "more":
            return Answer(told=model, further=model)
        if self.how == "maxima":
            return Answer(told=model, maxima={"largest": model})
        if self.how == "short":
            return Answer(told=model[:3])
        return Answer(told=model)

    def releases(self) -> Released:
        if self.how == "silent":
            return super().releases()
        return Released({"told": "model"})


REFUSED: list[tuple[dict[str, Any], str]] = [
    (RELAY | {"dp": central()}, r"dp.*'central' needs a server.*use level = 'local'"),
    ({"dp": central(target_epsilon=1.0)}, "either noise_multiplier or target_epsilon, not both; .*the whole table"),
    ({"dp": {"level": "central", "clip_norm": 1.0}}, "either noise_multiplier or target_epsilon; neither is set"),
    ({"schedule": "central", "cohort": None, "dp": central()}, "dp: has no effect with this schedule"),
    (
        {"dp": central(delta=None)},
        r"phases.hidden.dp.delta: its default, .* of M = 12 clients, is 0.065, .*; give delta",
    ),
    ({"dp": local(delta=None)}, r"phases.hidden.dp.delta: its default"),
    ({"dp": central(delta=0.2)}, r"phases.hidden.dp.delta: 0.2 is above 0.065, 1 / M\^1.1 of M = 12 clients"),
    ({"algorithm": {"name": "feddyn", "scale_alpha": True}, "dp": central()}, "use scale_alpha = false"),
    ({"algorithm": {"name": "fedexp", "weighting": "samples"}, "dp": central()}, "use weighting = 'uniform'"),
    ({"algorithm": {"name": "perfedavg", "weighting": "samples"}, "dp": central()}, "use weighting = 'uniform'"),
    (
        {"algorithm": {"name": "fedavg", "weighting": "uniform", "aggregation": "median"}, "dp": central()},
        "aggregation = 'median' reads the clients' updates one by one.*use aggregation = 'mean'",
    ),
    (
        {"algorithm": f"{__name__}:Telling", "dp": central()},
        r"Telling does not declare what its clients release; define releases\(\)",
    ),
    ({"cohort": {"sampler": f"{__name__}:FirstFew"}, "dp": local()}, "no account covers clients that the sampler"),
    ({"dp": central(accountant="prv")}, "dp.accountant: 'prv' does not cover .*without_replacement; use 'rdp'"),
    (
        {"cohort": {"explicit": [[0, 1]]}, "dp": central(accountant="rdp")},
        "'rdp' does not cover this run's cohorts, none; leave it out: epsilon is exact",
    ),
    ({"dp": local(clip_norm={"quantile": 0.5})}, "needs level = 'central': the server adapts it"),
    (
        {"dp": central(noise_multiplier=3.0, clip_norm={"quantile": 0.5, "noise_multiplier": 2.0})},
        "clip_norm.noise_multiplier = 2 must be above noise_multiplier",
    ),
    (
        {"dp": target(0.5, clip_norm={"quantile": 0.5, "noise_multiplier": 1.0})},
        "needs a noise multiplier of .*clip_norm.noise_multiplier = 1 must be above it",
    ),
    (
        {"dp": {"level": "local", "target_epsilon": 1e-9, "clip_norm": 1.0, "delta": 1e-12}},
        "dp.target_epsilon: no amount of noise meets 1e-09 at delta 1e-12 after 3 rounds",
    ),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_options_that_do_not_hide_clients_are_rejected(changes: dict[str, Any], said: str) -> None:
    chosen = {key: value for key, value in phase(**changes).items() if value is not None}
    with pytest.raises(ScenarioError, match=said):
        job(chosen)


def test_batch_norm_is_rejected_and_a_remedy_named() -> None:
    for changes in ({"dp": central()}, RELAY | {"dp": local()}):
        with pytest.raises(ScenarioError, match=r"hidden.dp: buffer 'norm.running_mean' .*use group norm"):
            job(phase(**changes, local=FULL), model=f"{__name__}:Normed")
    head = job(phase(train=["read_out"], dp=central()), model=f"{__name__}:Normed")
    assert head.phases[0].hiding is not None


def test_delta_has_a_default_from_66_clients_on() -> None:
    scenario = job(phase(dp=central())).scenario
    (only,) = scenario.phases
    given = only.model_copy(update={"dp": ClientDP(**central(delta=None))})
    plans = plan_phases(scenario.model_copy(update={"phases": (given,)}))
    with pytest.raises(ScenarioError, match=r"phases.hidden.dp.delta: its default, .* of M = 65 clients, is 0.0101"):
        check_account(plans, 65)
    assert check_account(plans, 66)[0] == pytest.approx(66**-1.1)


def test_phases_that_no_account_composes_are_rejected() -> None:
    poisson = phase(name="poisson", cohort={"bernoulli": 0.3}, dp=central())
    with pytest.raises(
        ScenarioError, match=r"phases.fixed.dp: its neighbours differ in one client replaced by another"
    ):
        job(poisson, phase(name="fixed", dp=central()))
    with pytest.raises(ScenarioError, match=r"phases.second.dp.delta: 0.01, but 0.065 in phase 'hidden'"):
        job(phase(dp=central()), phase(name="second", dp=central(delta=0.01)))
    with pytest.raises(ScenarioError, match=r"dp\.accountant: must be the same in all phases of one account"):
        job(poisson | {"dp": central(accountant="prv")}, poisson | {"name": "b", "dp": central(accountant="rdp")})


def test_a_target_that_earlier_phases_have_spent_is_rejected() -> None:
    later = phase(name="later", dp=target(2.0))
    with pytest.raises(ScenarioError, match=r"phases.later.dp.target_epsilon: 2 is spent before this phase"):
        job(phase(dp=central(noise_multiplier=0.5)), later)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("weight", "its answer has the weight 2, but dp needs the same weight, 1"),
        ("more", r"it answered with 'further', 'told' as values, but its algorithm's releases\(\) declares 'told'"),
        ("maxima", r"it answered with maxima \('largest'\), which no noise hides"),
        ("short", r"it answered with 'told' of 3 values, but its algorithm's releases\(\) declares 'model'"),
        ("each", r"Telling: requests answers one by one \(each=True\), but dp only releases sums"),
    ],
)
def test_an_algorithm_that_answers_otherwise_than_it_declares_ends_the_run(how: str, said: str) -> None:
    telling = job(phase(algorithm={"name": f"{__name__}:Telling", "how": how}, dp=central()))
    with pytest.raises((ClientError, RayflError), match=said):
        run_on_hosts(telling, 2)
