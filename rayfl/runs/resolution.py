"""Resolves a scenario: looks up its names, checks their options, and writes out every default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from rayfl.algorithms.construction import ALGORITHMS, SAMPLERS, TRANSFORMS, build_algorithm
from rayfl.callbacks.selection import CALLBACKS, build_callbacks
from rayfl.config.base_phase import BasePhase
from rayfl.config.component import Choice
from rayfl.config.execution import Evaluation
from rayfl.config.phase import LocalPhase
from rayfl.config.scenario import Scenario
from rayfl.data.augmentation.pipeline import AUGMENTATIONS
from rayfl.data.named_functions import COLLATIONS, LABELINGS, SOURCES
from rayfl.data.partition.split import PARTITIONERS
from rayfl.errors import ScenarioError
from rayfl.local.optimizers import OPTIMIZERS
from rayfl.local.sample_weights import WEIGHTINGS
from rayfl.models.construction import MODELS
from rayfl.runs.start_chain import scenario_to_start_from
from rayfl.tasks.construction import TASKS, build_task
from rayfl.tasks.metrics.construction import METRICS, metric_label

_LOCAL = ("phases.*.local", "phases.*.server_training", "evaluation.personalize")

PARTS: Sequence[tuple[Choice, Sequence[str]]] = (
    (SOURCES, ("data",)),
    (PARTITIONERS, ("data.partition",)),
    (AUGMENTATIONS, ("data.augment.*", "data.views.*.augment.*")),
    (LABELINGS, ("data.labels_by",)),
    (COLLATIONS, ("data.collate",)),
    (TASKS, ("task", "phases.*.task")),
    (METRICS, ("evaluation.metrics.*", "phases.*.metrics.*")),
    (ALGORITHMS, ("phases.*.algorithm",)),
    (TRANSFORMS, ("phases.*.transforms.*",)),
    (SAMPLERS, ("phases.*.cohort",)),
    (OPTIMIZERS, _LOCAL),
    (WEIGHTINGS, tuple(f"{path}.sample_weights" for path in _LOCAL)),
    (MODELS, ("model", "phases.*.model")),
    (CALLBACKS, ("callbacks.*",)),
)
"""What scenarios choose by name, and the key paths of these choices; * stands for every phase or element of a list."""


def resolve(scenario: Scenario) -> Scenario:
    """Resolves a scenario before any data is loaded.

    Args:
        scenario: The scenario as loaded from files and overrides.

    Returns:
        The same scenario with every default written out.

    Raises:
        ScenarioError: A task, metric, algorithm, optimizer, model, data set, partition, augmentation or callback is
            unknown, or one of its options is unknown, missing or out of range.
    """
    if scenario.start:
        scenario_to_start_from(scenario.start)
    scenario = _with_metrics_of_tasks(scenario.model_copy(update={"evaluation": _scored_as_trained(scenario)}))
    for choice, paths in PARTS:
        for path in paths:
            scenario = _resolved(scenario, path.split("."), choice)
    scenario = scenario.model_copy(
        update={
            "evaluation": scenario.evaluation.model_copy(update={"headline": _headline(scenario)}),
            "phases": tuple(
                phase.model_copy(
                    update={"eval_model": phase.settings.eval_model or build_algorithm(phase).default_eval_model}
                )
                if phase.has_server
                else phase
                for phase in scenario.phases
            ),
        }
    )
    build_callbacks(scenario)  # each checks whether the scenario suits it
    return scenario


def _resolved(part: Any, path: Sequence[str], choice: Choice, where: str = "") -> Any:
    """Returns a part of a scenario with the choices at a path within it resolved."""
    if not path:
        return choice.resolve(part, where)
    key, *inner = path
    if key == "*":
        names = [item.name if isinstance(item, BasePhase) else index for index, item in enumerate(part)]
        return tuple(_resolved(item, inner, choice, f"{where}.{name}") for name, item in zip(names, part, strict=True))
    if key not in type(part).model_fields or (value := getattr(part, key)) is None:
        return part
    return part.model_copy(update={key: _resolved(value, inner, choice, f"{where}.{key}" if where else key)})


def _scored_as_trained(scenario: Scenario) -> Evaluation:
    """Scores clients with their own models if a phase trains them alone.

    Raises:
        ScenarioError: Another option of the evaluation requires the global model.
    """
    evaluation = scenario.evaluation
    alone = next((phase.name for phase in scenario.phases if isinstance(phase, LocalPhase)), None)
    if alone is None or evaluation.client_model == "personal":
        return evaluation
    if "client_model" in evaluation.model_fields_set:
        raise ScenarioError(
            f"evaluation.client_model: 'global' scores a model that no client trains in phase '{alone}'; leave it out"
        )
    try:
        return Evaluation.model_validate({**dict(evaluation), "client_model": "personal"})
    except ValidationError as error:
        why = str(error.errors()[0]["ctx"]["error"])
        raise ScenarioError(
            f"evaluation: clients of phase '{alone}' train alone and are scored with their own models: {why}"
        ) from None


def _with_metrics_of_tasks(scenario: Scenario) -> Scenario:
    """Adds the metrics of its task to an evaluation that lists none, and to a phase with a task of its own."""
    evaluation = scenario.evaluation
    if not evaluation.metrics:
        evaluation = evaluation.model_copy(update={"metrics": build_task(scenario).metrics()})
    phases = tuple(
        phase.model_copy(update={"metrics": build_task(scenario, phase).metrics()})
        if phase.task and phase.metrics is None
        else phase
        for phase in scenario.phases
    )
    return scenario.model_copy(update={"evaluation": evaluation, "phases": phases})


def _headline(scenario: Scenario) -> str:
    labels = [*map(metric_label, scenario.evaluation.metrics), *(["loss"] if build_task(scenario).has_loss else [])]
    headline = scenario.evaluation.headline or labels[0]
    if headline not in labels:
        raise ScenarioError(f"evaluation.headline: '{headline}' is not among the metrics: {', '.join(labels)}")
    return headline
