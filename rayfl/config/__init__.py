"""The scenario schema: frozen pydantic models, one file per section; and how scenarios are found and overridden."""

from rayfl.config.finding import find_scenarios
from rayfl.config.loading import load_scenario
from rayfl.config.scenario import Scenario

__all__ = ["Scenario", "find_scenarios", "load_scenario"]
