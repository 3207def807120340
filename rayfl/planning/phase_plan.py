"""What every part of the engine derives from a phase: its algorithm and task, what is kept, what is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.alone import Alone
from rayfl.algorithms.building import build_algorithm, build_sampler, build_transforms
from rayfl.algorithms.diagnostics import Diagnostics
from rayfl.algorithms.eval_model import EvaluatedModel
from rayfl.algorithms.exchange import Asked
from rayfl.algorithms.sampler import CohortSampler
from rayfl.algorithms.transforms import AnswerTransform
from rayfl.config.cohort import BySampler
from rayfl.config.local import Local, Train
from rayfl.config.phase import CentralPhase, LocalPhase, Phase
from rayfl.config.privacy import Quantile
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.local.state import VELOCITY, Scope, merged
from rayfl.planning.client_mechanism import CLIP_NORM, ClientMechanism
from rayfl.tasks.building import build_task
from rayfl.tasks.task import Task

PhaseNoise = float | np.ndarray | None
"""The noise multiplier of a phase's `local.dp`: one for all clients, or float64 [clients]; None without it."""


@dataclass(frozen=True)
class Protection:
    """How a run protects samples and clients, found before it starts.

    Attributes:
        noise: By phase, the noise multiplier of `local.dp`; empty if no phase has it.
        mechanisms: By phase, how it hides its clients (`phases.N.dp`), None where it does not; empty if none does.
    """

    noise: Sequence[PhaseNoise] = ()
    mechanisms: Sequence[ClientMechanism | None] = ()


@dataclass(frozen=True)
class PhasePlan:
    """One phase of a scenario, built.

    Attributes:
        number: Its number, from 0.
        phase: As configured.
        algorithm: Its algorithm; in a local phase around the one that the scenario names.
        task: What it learns.
        transforms: What happens to answers before they are summed.
        first_round: The scenario's number of its first round.
        noise: The noise multiplier of its `local.dp`, once it is known.
        hiding: How it hides its clients, once that is known; None where it does not.
    """

    number: int
    phase: Phase
    algorithm: Algorithm
    task: Task
    transforms: tuple[AnswerTransform, ...]
    first_round: int
    noise: PhaseNoise = field(default=None, repr=False)
    hiding: ClientMechanism | None = None

    @property
    def train(self) -> tuple[Train, ...]:
        """What restricts the parameters that train."""
        return self.objective.trains_only, self.phase.train

    @property
    def objective(self) -> Algorithm:
        """The algorithm as the scenario names it: in a local phase clients use its local objective alone."""
        return self.algorithm.objective if isinstance(self.algorithm, Alone) else self.algorithm

    @cached_property
    def asked(self) -> tuple[Asked, ...]:
        """Who answers each of a round's exchanges."""
        training: tuple[Asked, ...] = ("server",) if self.phase.settings.server_training else ()
        return (*self.algorithm.asks(), *training)

    def local(self, exchange: int) -> Local:
        """How an exchange's training requests are carried out."""
        last = exchange == len(self.asked) - 1
        return self.phase.settings.server_training if last and self.phase.settings.server_training else self.phase.local

    def noise_multiplier(self, client: int) -> float | None:
        """The noise multiplier of a client's `local.dp`, or of a pool of samples, which takes the largest of any."""
        if self.noise is None or isinstance(self.noise, int | float):
            return self.noise
        return float(self.noise[client] if client < len(self.noise) else self.noise.max())

    @cached_property
    def evaluated(self) -> EvaluatedModel:
        """Which model is evaluated."""
        settings = self.phase.settings
        rule = settings.eval_model or self.algorithm.default_eval_model
        return EvaluatedModel(rule if self.phase.has_server else "global", settings.ema_decay)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """What is reported of any algorithm's rounds."""
        return Diagnostics(self.phase.settings.report)

    @cached_property
    def sampler(self) -> CohortSampler | None:
        """What draws its cohorts, if a class does."""
        return build_sampler(self.phase) if isinstance(self.phase.settings.cohort, BySampler) else None

    @cached_property
    def client_state(self) -> dict[str, Scope]:
        """The scope of everything that clients keep.

        Raises:
            ScenarioError: Two parts of the phase keep a state of the same name.
        """
        sent = self.algorithm.sent_vectors
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

    @property
    def keeps_momentum(self) -> bool:
        """Whether a round of local training begins with the velocity of the round before."""
        return isinstance(self.phase, CentralPhase) and self.phase.keep_momentum

    @cached_property
    def keeps_client_state(self) -> bool:
        """Whether clients keep anything beyond a round, which ties them to their hosts."""
        return any(scope != "round" for scope in self.client_state.values())

    @cached_property
    def server_state(self) -> dict[str, Scope]:
        """The scope of everything that the server keeps.

        Raises:
            ScenarioError: As `client_state`.
        """
        first: dict[str, Scope] = {"first_model": "phase"} if self.algorithm.reads_first_model() else {}
        dp = self.phase.settings.dp
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
    """Whether the evaluation of a phase scores models that single clients keep, which only their own hosts have."""
    return scenario.evaluation.client_model == "personal" and plan.algorithm.has_personal_model()


def has_fresh_head(scenario: Scenario, number: int) -> bool:
    """Whether the feature layer of a phase stays as initialised, whatever the phase before could hand over."""
    if number == 0:
        return False
    phase, before = scenario.phases[number], scenario.phases[number - 1]
    if phase.head is not None:
        return phase.head == "fresh"
    return scenario.task_of(phase).name != scenario.task_of(before).name


def plan_phases(scenario: Scenario, protection: Protection | None = None) -> list[PhasePlan]:
    """The phases of a scenario, in order.

    Args:
        scenario: The scenario.
        protection: How samples and clients are protected; None as long as it is not known.

    Raises:
        ScenarioError: As `build_algorithm` and `build_task`.
    """
    protection, plans, first = protection or Protection(), [], 1
    for number, phase in enumerate(scenario.phases):
        noise = protection.noise[number] if protection.noise else None
        hiding = protection.mechanisms[number] if protection.mechanisms else None
        algorithm, task, transforms = build_algorithm(phase), build_task(scenario, phase), build_transforms(phase)
        if isinstance(phase, LocalPhase):
            algorithm = Alone(objective=algorithm)
        plans.append(PhasePlan(number, phase, algorithm, task, tuple(transforms), first, noise, hiding))
        first += phase.rounds
    return plans
