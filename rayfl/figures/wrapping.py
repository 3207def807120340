"""Texts in lines of similar lengths."""

from __future__ import annotations

import textwrap


def balanced(text: str, most: int) -> list[str]:
    """The text in as few lines as `most` characters a line allow, of similar lengths; words are never broken."""

    def wrapped(width: int) -> list[str]:
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)

    lines = len(wrapped(most))
    widths = range(1 + len(text) // max(1, lines), most)
    return next((found for width in widths if len(found := wrapped(width)) == lines), wrapped(most))
