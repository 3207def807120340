"""Figures as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Returns `0.4 s`, `12 s`, `3 min 20 s` or `2 h 5 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def percent(share: float) -> str:
    """Returns `45.20 %` for 0.452."""
    return f"{100 * share:.2f} %"
