"""What an algorithm works with, asked of rayfl itself: small scenarios are checked as before a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from extensions.types_in_words import toml
from rayfl.algorithms import algorithms
from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.building import build_algorithm
from rayfl.algorithms.presets import PRESETS
from rayfl.config.scenario import Scenario
from rayfl.engine.phase_checks import check_scenario
from rayfl.errors import ScenarioError
from rayfl.resolution import resolve

Table = Mapping[str, Any]

RATE = {"lr": 0.1}
SAMPLE_DP = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
CLIENT_DP = {"noise_multiplier": 1.0, "clip_norm": 1.0, "level": "central"}
DEVICES = {"participation": {"samples_per_s": 100.0}}
COHORT = {"cohort": 2}

USES: Mapping[str, tuple[Table, Table]] = {
    "Relay (sequential training)": ({"schedule": "relay", **COHORT}, {}),
    "Local training alone": ({"schedule": "local"}, {}),
    "Buffered asynchronous training": ({"schedule": "buffered", "concurrency": 4, "buffer": 2}, DEVICES),
    "Example-level DP": ({**COHORT, "local": {**RATE, "dp": SAMPLE_DP}}, {}),
    "Client-level DP": ({**COHORT, "dp": CLIENT_DP}, {}),
}
"""What may or may not work with an algorithm: the keys of the phase, and of the scenario."""

NO_BATCH_NORM = "it needs batch norm, which mixes the samples of a batch"


def scenario(name: str, options: Table, phase: Table, top: Table) -> Scenario:
    """A scenario of one phase with the algorithm."""
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
    """The algorithm with its default options."""
    return build_algorithm(scenario(name, {}, COHORT, {}).phases[0])


def refusal(name: str, options: Table, phase: Table, top: Table) -> str:
    """Why rayfl rejects the scenario; empty if it accepts it."""
    try:
        check_scenario(resolve(scenario(name, options, phase, top)))
    except ScenarioError as error:
        return str(error)
    return ""


def support(name: str, use: str) -> tuple[Table | None, str]:
    """The options with which a use works, if any; and the reason where it does not by default."""
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
    """What clients and the server keep, with scopes."""
    return built(name).client_state(), built(name).server_state()


def preset_in_words(name: str) -> str:
    """The general form of a preset; empty if the name is no preset."""
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
    """Every other value of each option that has a few."""
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
    """A message without the path of the phase that it was asked about."""
    for prefix in ("phases.p: ", "phases.p."):
        reason = reason.removeprefix(prefix)
    return reason


def chosen(options: Table) -> str:
    """Options as a scenario writes them."""
    return ", ".join(f"{key} = {toml(value)}" for key, value in options.items())
