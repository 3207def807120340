"""The check for libraries that every process compiles anew."""

from __future__ import annotations

import py_compile
import sys
from pathlib import Path

import pytest

from rayfl.cli.doctor.libraries import bytecode_check, uncompiled


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a_library_without_bytecode"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_a_library_is_reported_only_if_python_may_not_keep_it_compiled(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert uncompiled([package.name]) == []
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert uncompiled([package.name, "no_such_library"]) == [package]
    py_compile.compile(str(package / "__init__.py"))
    assert uncompiled([package.name]) == []


def test_the_warning_names_the_cause_and_a_remedy(package: Path) -> None:
    assert [*bytecode_check([], True)] == []
    (check,) = bytecode_check([package], True)
    assert (check.state, check.remedy) == ("warning", f"python -m compileall -q {package.parent}, or unset it")
    assert check.found.endswith("every process compiles them anew, since PYTHONDONTWRITEBYTECODE is set")
    (check,) = bytecode_check([package], False)
    assert check.found.endswith("since their folders are not writable")
    assert check.remedy == f"python -m compileall -q {package.parent}"
