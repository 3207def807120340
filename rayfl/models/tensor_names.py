"""Names of tensors in messages. Loads no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int = 5) -> str:
    """Quotes the first few names in alphabetical order, and counts the others."""
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
