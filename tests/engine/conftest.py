"""No run of these tests reads their code for a fingerprint, which is tested elsewhere."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.runs.preparation.code_digests", lambda _: {})
