"""What the documentation's generators need to be imported, without Sphinx running."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def extensions_are_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DOCS))
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "extensions":
            del sys.modules[name]
