"""Features that an algorithm supports, found by validating small scenarios with rayfl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from extensions.types_in_words import toml
from rayfl.algorithms import algorithms
from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.construction import PRESETS, build_algorithm
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.scenario_checks import check_rounds, check_scenario
from rayfl.engine.plan.symbolic_rounds import with_traces
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve

Table = Mapping[str, Any]

RATE = {"lr": 0.1}
SAMPLE_DP = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
CLIENT_DP = {"noise_multiplier": 1.0, "clip_norm": 1.0, "level": "central"}
DEVICES = {"participation": {"samples_per_s": 100.0}}
COHORT = {"cohort": 2}

USES: Mapping[str, tuple[Table, Table]] = {
    "Relay (sequential training)": ({"schedule": "relay", **COHORT}, {}),
    "Local training only": ({"schedule": "local"}, {}),
    "Buffered asynchronous training": ({"schedule": "buffered", "concurrency": 4, "buffer": 2}, DEVICES),
    "Example-level DP": ({**COHORT, "local": {**RATE, "dp": SAMPLE_DP}}, {}),
    "Client-level DP": ({**COHORT, "dp": CLIENT_DP}, {}),
}
"""Features that an algorithm may support: the keys of the phase and of the scenario."""

NO_BATCH_NORM = "it needs batch norm, which mixes the samples of a batch"


def scenario(name: str, options: Table, phase: Table, top: Table) -> Scenario:
    """Returns a scenario with one phase that uses the algorithm."""
    table = {
        "title": name,
        "data": {"name": "handwriting"},
        "model": {"name": "lenet5"},
        **top,
        "phases": [{"name": "p", "rounds": 1, "local": RATE, **phase, "algorithm": {"name": name, **options}}],
    }
    return Scenario.model_validate(table)


@cache
def built(name: str) -> Algorithm:
    """Builds the algorithm with its default options."""
    return build_algorithm(scenario(name, {}, COHORT, {}).phases[0])


def traced(plans: Sequence[PhasePlan]) -> list[PhasePlan]:
    """Returns phases with the traces of their rounds on a small network."""
    run, model = network()
    return with_traces(plans, [model] * len(plans), [run.result] * len(plans))


@cache
def network() -> tuple[RunPlan, FlatModel]:
    """Prepares a network and its data."""
    return prepare(scenario("fedavg", {}, COHORT, {}), Path("no-data-here"))


def exchanges(name: str) -> int:
    """Returns the number of exchanges of a round of the algorithm with its default options."""
    (plan,) = traced(check_scenario(resolve(scenario(name, {}, COHORT, {}))))
    return len(plan.asked)


def refusal(name: str, options: Table, phase: Table, top: Table) -> str:
    """Returns why rayfl rejects the scenario; empty if it accepts it."""
    try:
        checked = resolve(scenario(name, options, phase, top))
        check_rounds(checked, traced(check_scenario(checked)))
    except ScenarioError as error:
        return str(error)
    return ""


def support(name: str, use: str) -> tuple[Table | None, str]:
    """Returns the options that support a use, if any, and the reason why the defaults do not."""
    phase, top = USES[use]
    if use == "Example-level DP" and "batch_norm" in built(name).requirements():
        return None, NO_BATCH_NORM
    reason = refusal(name, {}, phase, top)
    if not reason:
        return {}, ""
    for options in _one_option_changed(name):
        try:
            if not refusal(name, options, phase, top):
                return options, _short(reason)
        except ValidationError:
            continue
    return None, _short(reason)


def state(name: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the state of clients and of the server, with scopes."""
    return built(name).client_state(), built(name).server_state()


def preset_in_words(name: str) -> str:
    """Returns the general form of a preset; empty for other names."""
    if name not in PRESETS:
        return ""
    part, _ = PRESETS[name].part()
    key = f'penalties = ["{part}"]' if PRESETS[name].penalty else f'server_optimizer = "{part}"'
    return f'{{ name = "fedavg", {key} }}'


def presets_of(name: str) -> list[str]:
    """The presets of the algorithm's class."""
    return [
        preset for preset in PRESETS if name not in PRESETS and algorithms.resolve(preset) is algorithms.resolve(name)
    ]


def _one_option_changed(name: str) -> Iterator[dict[str, Any]]:
    """Yields every non-default value of each option with a fixed set of values."""
    kind = type(built(name))
    for key, field in kind.model_fields.items():
        values: tuple[Any, ...] = ()
        if get_origin(field.annotation) is Literal:
            values = get_args(field.annotation)
        elif field.annotation is bool:
            values = (True, False)
        for value in values:
            if value != getattr(built(name), key):
                yield {key: value}


def _short(reason: str) -> str:
    """Returns a message without the path of the phase."""
    for prefix in ("phases.p: ", "phases.p."):
        reason = reason.removeprefix(prefix)
    return reason


def chosen(options: Table) -> str:
    """Formats options as in a scenario."""
    return ", ".join(f"{key} = {toml(value)}" for key, value in options.items())
