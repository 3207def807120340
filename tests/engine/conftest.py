"""No run of these tests draws its curves, or reads their code for a fingerprint: both are tested elsewhere."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def never_drawn(no_picture: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.preparation.code_digests", lambda _: {})
