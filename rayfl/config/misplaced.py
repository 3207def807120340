"""Finds the right place of misplaced keys, such as a learning rate next to `rounds` instead of in `local`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from rayfl.config.data import Data
from rayfl.config.execution import Evaluation, Numerics, Resources
from rayfl.config.key_paths import written_path
from rayfl.config.local import Local
from rayfl.config.phase import ParallelPhase
from rayfl.synonyms import MEANT
from rayfl.wording import KeyPath

_SECTIONS: Mapping[str, type[BaseModel]] = {
    "data": Data,
    "phases.N": ParallelPhase,
    "phases.N.local": Local,
    "evaluation": Evaluation,
    "resources": Resources,
    "numerics": Numerics,
}
_AMBIGUOUS = {"name", "options", "seed"}
"""Keys that many sections have."""


def key_elsewhere(path: KeyPath, fields: Collection[str], tables: Any) -> str | None:
    """Returns the path of the intended key if another section has it.

    Args:
        path: Path of an unknown key.
        fields: The keys of its section.
        tables: The tables of the scenario, for the names of its phases.

    Returns:
        The path; None if its own section has the key under another name, or no section has it.
    """
    own = str(path[-1])
    for name in dict.fromkeys([own, MEANT.get(own.lower(), own)]):
        if name in fields or name in _AMBIGUOUS:
            return None
        for section, schema in _SECTIONS.items():
            if name in schema.model_fields:
                phase = written_path(tables, path[:2] if path[0] == "phases" else ("phases", 0))
                return f"{section}.{name}".replace("phases.N", phase)
    return None
