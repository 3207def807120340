"""The documentation's check for pages that load anything from another host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_scenario_keys import DOCS


@pytest.fixture(autouse=True)
def _extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<script defer src="https://example.org/a.js"></script>'),
        ("a.html", "<img alt='x' src='//example.org/a.png'>"),
        ("a.html", '<link href="https://example.org/a.css" rel="stylesheet" />'),
        ("a.css", "@font-face { src: url(https://example.org/a.woff2) }"),
        ("a.css", '@import "https://example.org/a.css";'),
    ],
)
def test_requests_to_other_hosts_are_found_in_a_page(name: str, text: str, tmp_path: Path) -> None:
    from extensions.offline import loaded_from_elsewhere

    (tmp_path / name).write_text(text)
    (found,) = loaded_from_elsewhere(tmp_path)
    assert found.startswith(f"{name}: ")
    assert "example.org" in found


def test_links_and_own_files_are_fine(tmp_path: Path) -> None:
    from extensions.offline import loaded_from_elsewhere

    page = '<a href="https://example.org">out</a><script src="_static/a.js"></script><link rel="next" href="https://b.c/d">'
    (tmp_path / "a.html").write_text(page)
    assert loaded_from_elsewhere(tmp_path) == []
