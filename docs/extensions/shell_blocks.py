"""Indented blocks that hold commands become shell blocks, which the style sheet wraps."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx

COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:rayfl|python|make|ray|pip|uv|git|kubectl)\b|#|$")
"""How a line of a block of commands begins; comments and empty lines may stand between them."""


def is_commands(text: str) -> bool:
    """Whether every line is a command, a comment, or empty, or continues a line that ends with a backslash."""
    lines = text.replace("\\\n", " ").splitlines()
    return any(line.strip() for line in lines) and all(COMMAND.match(line.strip()) for line in lines)


def mark(app: Sphinx, document: nodes.document) -> None:
    for block in document.findall(nodes.literal_block):
        if block.get("language") == "none" and is_commands(block.astext()):
            block["language"] = "sh"


def setup(app: Sphinx) -> dict[str, bool]:
    """Marks the blocks of every page after it is read."""
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
