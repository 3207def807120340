"""Names of tensors in messages, and of tensors that follow others. Loads no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def listed(names: Sequence[str], most: int = 5) -> str:
    """Quotes the first few names in alphabetical order, and gives the number of the others."""
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def taken_over(taken: Sequence[str], fresh: Sequence[str], not_used: Sequence[str]) -> str:
    """One line for users: "8 tensors taken, 2 fresh ('fc3.bias', 'fc3.weight')"."""
    others = {"fresh": fresh, "not used": not_used}
    said = [f"{len(names)} {what} ({listed(names)})" for what, names in others.items() if names]
    return ", ".join([f"{len(taken)} tensors taken", *said])


def followed(name: str, copies: Mapping[str, str]) -> str | None:
    """The name of the tensor that a tensor of a copy follows (`Network.copies`); None if it belongs to no copy."""
    for copy, original in copies.items():
        if name.startswith(f"{copy}."):
            return original + name.removeprefix(copy)
    return None
