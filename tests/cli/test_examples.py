"""`rayfl examples` copies the examples, or says why it cannot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rayfl.__main__ import main


def test_an_error_without_a_text_of_the_system_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def copytree(*arguments: object, **options: object) -> None:
        raise shutil.Error([("a", "b", "disk full")])

    monkeypatch.setattr(shutil, "copytree", copytree)
    assert main(["examples", str(tmp_path / "mine")]) == 1
    said = capsys.readouterr().err
    assert "cannot copy the examples" in said
    assert "disk full" in said
    assert "None" not in said
