"""Authors, venue and year of the papers that docstrings cite, in one line."""

from __future__ import annotations

import re

AUTHOR = r"[A-Z][\w'-]+"
CITED = re.compile(
    rf"(?P<authors>{AUTHOR}(?:, {AUTHOR})*(?: and {AUTHOR}| et al\.)?),\s"
    r'"[^"]+"(?:\s\([^)]*\))?,\s(?:in\s)?(?P<where>(?:[A-Za-z][\w. -]*\s)?\d{4})\b'
)
"""Authors, "title", venue year: the form of every citation in rayfl's docstrings."""


def short(text: str) -> str:
    """Returns "Li et al., MLSys 2020" for the first paper that a text cites; empty if it cites none."""
    found = CITED.search(" ".join(text.split()))
    if found is None:
        return ""
    authors = found["authors"]
    if authors.count(",") > 1:  # four authors or more
        authors = f"{authors.partition(',')[0]} et al."
    return f"{authors}, {found['where']}"
