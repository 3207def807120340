"""The scenario schema as frozen pydantic models, and how scenarios are found, read and overridden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.lazy_names import lazy_names

if TYPE_CHECKING:
    from rayfl.config.loader import load_scenario
    from rayfl.config.scenario import Scenario
    from rayfl.config.scenario_files import find_scenarios

__all__ = ["Scenario", "find_scenarios", "load_scenario"]

_HOMES = {
    "Scenario": "rayfl.config.scenario",
    "find_scenarios": "rayfl.config.scenario_files",
    "load_scenario": "rayfl.config.loader",
}

__getattr__ = lazy_names(__name__, _HOMES)
