"""The drawing of the architecture names the parts of the engine, and is reproducible."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.draw_architecture import draw

COMMITTED = Path(__file__).parents[2] / "docs" / "figures" / "architecture.svg"


def words(picture: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", picture.read_text())


def test_the_committed_picture_has_the_words_of_the_script(tmp_path: Path) -> None:
    draw(tmp_path / "architecture.svg")
    assert words(COMMITTED) == words(tmp_path / "architecture.svg")


@pytest.mark.parametrize("part", ["driver", "scheduler", "server", "object store"])
def test_both_rounds_show_every_part(part: str) -> None:
    assert words(COMMITTED).count(part) == 2
