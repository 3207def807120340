"""State that is kept between exchanges, with its scope; its owner must declare it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from rayfl.errors import ScenarioError

Scope = Literal["round", "phase", "run"]
"""How long a named state lives: across the exchanges of one round, within one phase, or throughout the run.

A client's state of scope `round` may be missing in a later exchange if its worker was restarted: compute it again. The
model of a later phase may have another layout, so vectors in the layout of the model belong to a phase.
"""

VELOCITY = "velocity"
"""The name under which a client keeps the momentum of local training, if the phase says so."""

Declaration = Mapping[str, Scope]
"""The scope of every named state, such as `{"control": "phase"}`; undeclared state cannot be kept.

You return one from `Algorithm.client_state` and `Algorithm.server_state`.
"""


def merged(declarations: Iterable[tuple[str, Declaration]]) -> dict[str, Scope]:
    """Merges several declarations into one.

    Args:
        declarations: Pairs of the owner's name (for the error) and its declaration.

    Raises:
        ScenarioError: Two declare the same name and would overwrite each other's state.

    Example:
        >>> from rayfl.algorithms import merged
        >>> merged([("the algorithm", {"control": "phase"}), ("the optimizer", {"momentum": "phase"})])
        {'control': 'phase', 'momentum': 'phase'}
    """
    owners: dict[str, str] = {}
    result: dict[str, Scope] = {}
    for owner, declaration in declarations:
        for name, scope in declaration.items():
            if name in owners:
                raise ScenarioError(
                    f"{owners[name]} and {owner} both keep a state named '{name}'; leave one of them out"
                )
            owners[name] = owner
            result[name] = scope
    return result
