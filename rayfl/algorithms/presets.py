"""Presets: names for well-known combinations; FedProx is FedAvg with a proximal regulariser.

`algorithm = { name = "fedprox", mu = 0.01 }` is short for
`algorithm = { name = "fedavg", penalties = [{ name = "proximal", mu = 0.01 }] }`, and
`algorithm = { name = "fedadam", lr = 0.1 }` for
`algorithm = { name = "fedavg", server_optimizer = { name = "adam", lr = 0.1 } }`.
A preset takes the options of its part and those of the algorithm. It also accepts the general form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayfl.algorithms.fedopt import server_optimizers
from rayfl.algorithms.penalty import penalties
from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class Preset:
    """FedAvg with one of its parts chosen.

    Attributes:
        penalty: Registered name of its only regulariser.
        server_optimizer: Registered name of its server optimizer.
    """

    penalty: str | None = None
    server_optimizer: str | None = None

    def part(self) -> tuple[str, Any]:
        """Returns the registered name of the chosen part, and its class."""
        registry, name = (penalties, self.penalty) if self.penalty else (server_optimizers, str(self.server_optimizer))
        return name, registry.resolve(name)

    def own_fields(self) -> list[str]:
        """Returns the options of the chosen part, which a scenario writes beside those of the algorithm."""
        return [field for field in self.part()[1].model_fields if field != "name"]

    def expand(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options in the general form.

        Raises:
            ScenarioError: The general form is given without the preset's own part, and so describes another algorithm.
        """
        name, own_fields = self.part()[0], self.own_fields()
        part: Any = {"name": name} | {key: value for key, value in options.items() if key in own_fields}
        rest = {key: value for key, value in options.items() if key not in own_fields}
        if self.penalty:
            return {"penalties": _with(rest.pop("penalties", [{"name": name}]), part), **rest}
        chosen = rest.pop("server_optimizer", {})
        named = {"name": name, **chosen} if isinstance(chosen, Mapping) else chosen
        return {"server_optimizer": _with([named], part)[0], **rest}


def _with(chosen: Any, part: Mapping[str, Any]) -> Any:
    """Returns the chosen parts, with options overriding those of the part of the same name."""
    if not (isinstance(chosen, list | tuple) and all(isinstance(given, str | Mapping) for given in chosen)):
        return chosen  # validation will say what is wrong
    tables = [{"name": given} if isinstance(given, str) else given for given in chosen]
    if all(table.get("name") != part["name"] for table in tables):
        raise ScenarioError(
            f"this preset stands for '{part['name']}', but the parts given here do not include it; use the algorithm "
            "'fedavg' for other parts"
        )
    return [{**table, **part} if table.get("name") == part["name"] else table for table in tables]


PRESETS = {
    "fedprox": Preset(penalty="proximal"),
    "moon": Preset(penalty="contrastive"),
    "feddecorr": Preset(penalty="decorrelation"),
    "fedavgm": Preset(server_optimizer="momentum"),
    "fedadagrad": Preset(server_optimizer="adagrad"),
    "fedadam": Preset(server_optimizer="adam"),
    "fedyogi": Preset(server_optimizer="yogi"),
}
