"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem"]
"""`warning`: rayfl runs, but slower or with less than you may expect. `problem`: runs will fail."""

GB = 1e9


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        group: Its subject, for people: "machine", "Ray".
        name: The checked item.
        found: The finding.
        state: The verdict.
        remedy: What to do, in one line; empty if there is nothing to do.
    """

    group: str
    name: str
    found: str
    state: State = "ok"
    remedy: str = ""


def in_gb(size: float) -> str:
    """Bytes as gigabytes, for people."""
    return f"{size / GB:.1f} GB"
