"""What survives from exchange to exchange, by scope; whoever needs state declares it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from rayfl.errors import ScenarioError

Scope = Literal["round", "phase", "run"]
"""How long a named state lives: between the exchanges of one round, within one phase, or through the whole run.

A client's state of scope `round` may be missing in a later exchange, where its host was restarted: compute it again.
The model of a later phase may be laid out otherwise, so vectors that are laid out as the model belong to a phase.
"""

VELOCITY = "velocity"
"""The name under which a client keeps the momentum of local training, where the phase says so."""

Declaration = Mapping[str, Scope]
"""The scope of every named state; what is not declared cannot be kept."""


def merged(declarations: Iterable[tuple[str, Declaration]]) -> dict[str, Scope]:
    """All declarations as one.

    Args:
        declarations: (who declares, what).

    Raises:
        ScenarioError: Two declare the same name, and would overwrite each other's state.
    """
    owners: dict[str, str] = {}
    result: dict[str, Scope] = {}
    for owner, declaration in declarations:
        for name, scope in declaration.items():
            if name in owners:
                raise ScenarioError(f"{owners[name]} and {owner} both keep a state named '{name}'; combine others")
            owners[name] = owner
            result[name] = scope
    return result
