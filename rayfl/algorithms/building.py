"""From the algorithms that a scenario names to the algorithms themselves."""

from __future__ import annotations

from inspect import isabstract
from typing import Any

from rayfl.algorithms import algorithms
from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.component import build_component, with_options
from rayfl.algorithms.presets import PRESETS
from rayfl.algorithms.transforms import AnswerTransform, answer_transforms
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named
from rayfl.errors import ScenarioError


def build_algorithms(scenario: Scenario) -> list[Algorithm]:
    """The algorithm of each phase, with its hyper-parameters.

    Raises:
        ScenarioError: An unknown name, something that is no algorithm, or a hyper-parameter that is unknown or out of
            range.
    """
    return [build_algorithm(phase) for phase in scenario.phases]


def build_algorithm(phase: Phase) -> Algorithm:
    """The algorithm of one phase; see `build_algorithms`."""
    chosen, where = phase.algorithm, f"phases.{phase.name}.algorithm"
    kind = algorithms.resolve(chosen.name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ScenarioError(
            f"{where}: '{chosen.name}' is not a class derived from rayfl.algorithms.algorithm.Algorithm"
        )
    if isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise ScenarioError(f"{where}: '{chosen.name}' must define what its base class leaves open: {missing}")
    preset, options = PRESETS.get(chosen.name), chosen.options
    own_fields: list[str] = preset.own_fields() if preset else []
    if preset:
        own = {key: value for key, value in options.items() if key in own_fields}
        with_options(preset.part()[1], own, where)  # so that errors name the keys as the scenario writes them
        try:
            options = preset.expand(options)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
    algorithm: Algorithm = with_options(kind, options, where, own_fields)
    return algorithm


def build_transforms(phase: Phase) -> list[AnswerTransform]:
    """What happens to a phase's answers, in order.

    Raises:
        ScenarioError: As `build_algorithms`.
    """
    built = []
    for index, chosen in enumerate(phase.transforms):
        try:
            built.append(build_component(answer_transforms, AnswerTransform, chosen))
        except ScenarioError as error:
            raise ScenarioError(f"phases.{phase.name}.transforms.{index}: {error}") from None
    return built


def with_algorithm_defaults(scenario: Scenario) -> Scenario:
    """The same scenario with every option of its algorithms and transforms written out.

    Raises:
        ScenarioError: As `build_algorithms`.
    """
    return scenario.model_copy(update={"phases": tuple(_with_defaults(phase) for phase in scenario.phases)})


def _with_defaults(phase: Phase) -> Phase:
    algorithm = build_algorithm(phase)
    update: dict[str, Any] = {"algorithm": Named(name=phase.algorithm.name, **algorithm.model_dump(mode="json"))}
    update["eval_model"] = phase.eval_model or algorithm.default_eval_model
    update["transforms"] = tuple(
        Named.model_validate(transform.model_dump(mode="json")) for transform in build_transforms(phase)
    )
    return phase.model_copy(update={key: value for key, value in update.items() if key in type(phase).model_fields})
