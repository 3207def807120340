"""Generated handwriting that the tests of data share, so that each set is drawn once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder, which keeps what one test has generated for the next."""
    return tmp_path_factory.mktemp("generated")


@pytest.fixture
def few_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins of images have 20 writers, about 3000 images, instead of 100 or 60."""
    monkeypatch.setattr("rayfl.data.sources.fashion_mnist._STAND_IN_WRITERS", 20)
    for kind in ("COLOURED", "STYLED"):
        monkeypatch.setattr(f"rayfl.data.generated.digits.{kind}_WRITERS", 20)
