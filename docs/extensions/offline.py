"""Fails a build whose pages load scripts, styles or pictures from other servers; links are allowed."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc\s*=\s*["'](?:https?:)?//[^"']+"""
    r"""|<link\b(?=[^>]*\brel\s*=\s*["'](?:stylesheet|preload|icon|shortcut icon)["'])"""
    r"""[^>]*\bhref\s*=\s*["'](?:https?:)?//[^"']+"""
)
"""Resources that a browser fetches when it opens a page."""

LOADED_BY_STYLES = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//[^"')]+""")


def loaded_from_elsewhere(folder: Path) -> list[str]:
    """Returns the resources that pages and styles in a folder load from other servers, each with its file."""
    found = []
    for pattern, searched in (("*.html", LOADED), ("*.css", LOADED_BY_STYLES)):
        for path in sorted(folder.rglob(pattern)):
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(folder)}: {match[0]}" for match in searched.finditer(text)]
    return found


def check(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html" and (found := loaded_from_elsewhere(Path(app.outdir))):
        raise ExtensionError("pages load from other servers: " + "; ".join(found))


def setup(app: Sphinx) -> dict[str, bool]:
    """Checks every finished HTML build."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
