"""Derives a phase's plan from the scenario: its algorithm and task, states to keep, and the model to evaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.construction import build_algorithm, build_sampler, build_transforms
from rayfl.algorithms.exchange import Asked, Messages
from rayfl.algorithms.limits import SampleRequest
from rayfl.algorithms.round_results import Diagnostics, EvaluatedModel
from rayfl.algorithms.sampler import CohortSampler
from rayfl.algorithms.transforms import AnswerTransform
from rayfl.algorithms.wrappers import Alone
from rayfl.config.base_phase import PhaseSettings
from rayfl.config.cohort import BySampler
from rayfl.config.local import Local, Train
from rayfl.config.phase import CentralPhase, LocalPhase, Phase
from rayfl.config.privacy import Quantile
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.slices import Slices
from rayfl.engine.plan.trace import Trace, TracedRound, declared_exchanges, exchange_error, is_declared, written
from rayfl.engine.plan.workload import Population
from rayfl.engine.totals import Message
from rayfl.errors import ScenarioError
from rayfl.local.state import VELOCITY, Scope, merged
from rayfl.privacy.clients.mechanism import CLIP_NORM, ClientMechanism
from rayfl.tasks.construction import build_task
from rayfl.tasks.task import Task

PhaseNoise = float | np.ndarray | None
"""The noise multiplier of a phase's `local.dp`: one for all clients, or float64 [clients]; None without DP."""

COMPONENTS = ("algorithm", "task", "transforms", "sampler")
"""What a plan builds by the names in its scenario."""

NO_CLIENTS = Population(np.empty(0, np.int64), Slices.of(()))


@dataclass(frozen=True, eq=False)
class PhasePlan:
    """One phase of a scenario with its components.

    Attributes:
        scenario: The scenario.
        number: Its number, from 0.
        population: Its clients, once the data is known.
        messages: The traffic of each exchange that the cohort answers, with [participation].
        noise: The noise multiplier of its `local.dp`, once known.
        hiding: Its client-level DP, once known; None without it.
        first_messages: `messages` in the phase's first round.
        trace: What its rounds exchange and request, once the network is known.
    """

    scenario: Scenario = field(repr=False)
    number: int
    population: Population = field(default=NO_CLIENTS, repr=False)
    messages: Sequence[Message] = ()
    noise: PhaseNoise = field(default=None, repr=False)
    hiding: ClientMechanism | None = None
    first_messages: Sequence[Message] = ()
    trace: Trace | None = field(default=None, repr=False)

    def with_facts(self, **facts: Any) -> PhasePlan:
        """Returns the plan with other fields, and with the same components."""
        plan = replace(self, **facts)
        vars(plan).update({name: part for name, part in vars(self).items() if name in COMPONENTS})
        return plan

    def build(self) -> None:
        """Builds the components.

        Raises:
            ScenarioError: As `build_algorithm`, `build_task` and `build_transforms`.
        """
        _ = self.algorithm, self.task, self.transforms

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the components, whose code may not be importable yet where the plan arrives."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def phase(self) -> Phase:
        """Its configuration."""
        return self.scenario.phases[self.number]

    @cached_property
    def settings(self) -> PhaseSettings:
        """Its settings, with defaults for keys that its schedule does not have."""
        return self.phase.settings

    @property
    def first_round(self) -> int:
        """Number of its first round in the whole scenario."""
        return 1 + sum(phase.rounds for phase in self.scenario.phases[: self.number])

    @property
    def num_clients(self) -> int:
        """Number of all clients."""
        return len(self.population.sizes)

    @cached_property
    def algorithm(self) -> Algorithm:
        """Its algorithm; in a local phase a wrapper around the one that the scenario names."""
        built = build_algorithm(self.phase)
        return Alone(objective=built) if isinstance(self.phase, LocalPhase) else built

    @cached_property
    def task(self) -> Task:
        """Its task."""
        return build_task(self.scenario, self.phase)

    @cached_property
    def transforms(self) -> tuple[AnswerTransform, ...]:
        """Transforms of answers before they are summed."""
        return tuple(build_transforms(self.phase))

    @property
    def train(self) -> tuple[Train, ...]:
        """Restrictions of the trained parameters, by the objective and by the phase."""
        return self.objective.trains_only, self.phase.train

    @property
    def objective(self) -> Algorithm:
        """The algorithm that the scenario names; in a local phase, clients use only its local objective."""
        return self.algorithm.objective if isinstance(self.algorithm, Alone) else self.algorithm

    @property
    def traced(self) -> Trace:
        """Its trace, which exists once the network is known."""
        assert self.trace is not None
        return self.trace

    @property
    def runs_rounds(self) -> bool:
        """Whether its algorithm's `round` is run, rather than its local objective in hops."""
        return self.phase.has_server or isinstance(self.algorithm, Alone)

    @cached_property
    def asked(self) -> tuple[Asked, ...]:
        """The respondent of each exchange in a round: the cohort, the server or a host.

        Raises:
            ScenarioError: The algorithm's class declares other exchanges than its round yields.
        """
        training: tuple[Asked, ...] = ("server",) if self.settings.server_training else ()
        return (*self.own_exchanges, *training)

    @cached_property
    def own_exchanges(self) -> tuple[Asked, ...]:
        """The same for the algorithm's own exchanges, without training on the server's samples."""
        usual: tuple[Asked, ...] = ("cohort",)
        seen = tuple(one.at for one in self.traced.first) if self.runs_rounds else usual
        if declared_exchanges(self.algorithm) is None or not self.runs_rounds:
            return seen or usual  # a round without any exchange ends the run
        declared = self.algorithm.asks()
        ends: tuple[Asked | None, ...] = () if self.traced.unknown else (None,)
        for number, at in enumerate((*seen, *ends)):
            if error := exchange_error(declared, number, at, len(declared)):
                raise ScenarioError(f"algorithm {type(self.algorithm).__name__}: {error}")
        return declared

    @cached_property
    def sent_vectors(self) -> tuple[str, ...]:
        """Names of the answers' vectors that begin with all parameters, which transforms change."""
        declared: tuple[str, ...] = self.algorithm.sent_vectors
        return declared if is_declared(self.algorithm, "sent_vectors") else self.traced.vectors or declared

    @property
    def reads_first_model(self) -> bool:
        """Whether clients read the phase's first model."""
        return self.objective.reads_first_model() or self.traced.reads_first_model

    def protocol(self, first_round: bool = False) -> Messages:
        """Returns the parts that are sent down and up in each exchange that the cohort answers.

        Args:
            first_round: Whether the round is the phase's first.

        Raises:
            ScenarioError: They cannot be known beforehand.
        """
        if not is_declared(self.algorithm, "messages"):
            self._check_known("messages()")
            return self.traced_messages(first_round)
        declared = self.algorithm.messages()
        seen = [one.with_first_model for one in self._round(first_round) if one.at == "cohort"]
        return self._with_first_model(declared, seen if len(seen) == len(declared) else [True] * len(declared))

    def traced_messages(self, first_round: bool = False) -> Messages:
        """Returns the same as the traced rounds show it, whatever the algorithm's class declares."""
        round = [one for one in self._round(first_round) if one.at == "cohort"]
        return self._with_first_model([(one.down, one.up) for one in round], [one.with_first_model for one in round])

    def _with_first_model(self, messages: Messages, sent_along: Sequence[bool]) -> Messages:
        read = self.reads_first_model
        pairs = zip(messages, sent_along, strict=True)
        return [((*down, "model") if read and along else down, up) for (down, up), along in pairs]

    def sample_requests(self, first_round: bool = False) -> tuple[SampleRequest, ...]:
        """Returns the requests of a client update that read the client's samples, over all exchanges of a round.

        Args:
            first_round: Whether the round is the phase's first.

        Raises:
            ScenarioError: They cannot be known beforehand, or the algorithm's class does not declare all of them.
        """
        several = self.asked.count("cohort") > 1
        traced = [request for one in self._round(first_round) for request in one.requests]
        if not is_declared(self.objective, "sample_requests"):
            self._check_known("sample_requests()")
            return tuple(traced)
        declared: tuple[SampleRequest, ...] = self.objective.sample_requests()
        placed = [[one if several else replace(one, exchange=0) for one in requests] for requests in (traced, declared)]
        for request in Counter(placed[0]) - Counter(placed[1]):
            raise ScenarioError(
                f"phases.{self.phase.name}.algorithm: clients of '{self.phase.algorithm.name}' make the request "
                f"{written([request])[1:-2]}, which its `sample_requests` does not list; it must list every request "
                "that reads samples"
            )
        return declared

    def _round(self, first: bool) -> TracedRound:
        return self.traced.first if first else self.traced.later

    def _check_known(self, declaration: str) -> None:
        if self.traced.unknown:
            raise ScenarioError(
                f"phases.{self.phase.name}.algorithm: what clients of '{self.phase.algorithm.name}' do cannot be found "
                f"out beforehand: {self.traced.unknown}; define its {declaration}"
            )

    def local(self, exchange: int) -> Local:
        """Local training options of an exchange."""
        training = self.settings.server_training
        return training if training and exchange == len(self.asked) - 1 else self.phase.local

    def noise_multiplier(self, client: int) -> float | None:
        """The noise multiplier of `local.dp` for a client, or the largest of any client for a pool of samples."""
        if self.noise is None or isinstance(self.noise, int | float):
            return self.noise
        return float(self.noise[client] if client < len(self.noise) else self.noise.max())

    @cached_property
    def evaluated(self) -> EvaluatedModel:
        """The rule for the model to evaluate."""
        settings = self.settings
        rule = settings.eval_model or self.algorithm.default_eval_model
        return EvaluatedModel(rule if self.phase.has_server else "global", settings.ema_decay)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The diagnostics that the phase reports."""
        return Diagnostics(self.settings.report)

    @cached_property
    def sampler(self) -> CohortSampler | None:
        """The sampler that draws its cohorts, if the scenario names one."""
        return build_sampler(self.phase) if isinstance(self.settings.cohort, BySampler) else None

    @cached_property
    def client_state(self) -> dict[str, Scope]:
        """The scope of every client state.

        Raises:
            ScenarioError: Two parts of the phase keep a state of the same name.
        """
        sent = self.sent_vectors if self.transforms else ()
        transforms = [(f"transform '{item.name}'", item.client_state(sent)) for item in self.transforms]
        try:
            return merged(
                [
                    (f"algorithm '{self.phase.algorithm.name}'", self.algorithm.client_state()),
                    (f"task '{self.task.name}'", self.task.client_state()),
                    ("eval_model", self.evaluated.client_state()),
                    ("keep_momentum", {VELOCITY: "phase"} if self.keeps_momentum else {}),
                    *transforms,
                ]
            )
        except ScenarioError as error:
            raise ScenarioError(f"phases.{self.phase.name}: {error}") from None

    @cached_property
    def hidden_by(self) -> str:
        """The key of its differential privacy, under which no integer or flag may leave a client; empty without."""
        if self.phase.local.dp is not None:
            return f"phases.{self.phase.name}.local.dp"
        return "" if self.settings.dp is None else f"phases.{self.phase.name}.dp"

    @property
    def keeps_momentum(self) -> bool:
        """Whether local training begins with the momentum of the previous round."""
        return isinstance(self.phase, CentralPhase) and self.phase.keep_momentum

    @cached_property
    def keeps_client_state(self) -> bool:
        """Whether clients keep a state beyond a round, which ties them to their hosts."""
        return any(scope != "round" for scope in self.client_state.values())

    @cached_property
    def server_state(self) -> dict[str, Scope]:
        """The scope of every server state.

        Raises:
            ScenarioError: As `client_state`.
        """
        first: dict[str, Scope] = {"first_model": "phase"} if self.reads_first_model else {}
        dp = self.settings.dp
        adaptive: dict[str, Scope] = {CLIP_NORM: "phase"} if dp and isinstance(dp.clip_norm, Quantile) else {}
        try:
            return merged(
                [
                    (f"algorithm '{self.phase.algorithm.name}'", self.algorithm.server_state()),
                    ("eval_model", self.evaluated.server_state()),
                    ("the phase's first model", first),
                    ("dp.clip_norm", adaptive),
                ]
            )
        except ScenarioError as error:
            raise ScenarioError(f"phases.{self.phase.name}: {error}") from None


def scores_personal_models(scenario: Scenario, plan: PhasePlan) -> bool:
    """Whether a phase evaluates personal models, which only the hosts of their clients have."""
    return scenario.evaluation.client_model == "personal" and plan.algorithm.has_personal_model()


def has_fresh_head(scenario: Scenario, number: int) -> bool:
    """Whether a phase begins with a freshly initialised feature layer rather than the previous phase's."""
    if number == 0:
        return False
    phase, before = scenario.phases[number], scenario.phases[number - 1]
    if phase.head is not None:
        return phase.head == "fresh"
    return scenario.task_of(phase).name != scenario.task_of(before).name


def plan_phases(scenario: Scenario) -> list[PhasePlan]:
    """The phases of a scenario, in order. Their components are built where they are first used.

    Args:
        scenario: The scenario.
    """
    return [PhasePlan(scenario, number) for number in range(len(scenario.phases))]
