from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import draw_figures

GALLERY = """
::::{grid} 1 1 2 2

:::{grid-item-card} Kept

    rayfl plot docs/records/one --out docs/figures/one.png

**Records kept**: there.

:::

:::{grid-item-card} Lost

    rayfl plot RUN --out docs/figures/two.png

**Records not kept**: repeat it.

:::

:::{grid-item-card} Drawn

    python -m tools.draw_architecture --out docs/figures/three.svg

**Needs no records**.
:::
::::
"""


def test_commands_are_those_of_entries_that_can_be_drawn_again() -> None:
    assert draw_figures.commands(GALLERY) == {
        "one.png": "rayfl plot docs/records/one --out docs/figures/one.png",
        "three.svg": "python -m tools.draw_architecture --out docs/figures/three.svg",
    }


def test_every_command_of_the_gallery_reads_records_that_exist() -> None:
    found = draw_figures.commands(draw_figures.GALLERY.read_text(encoding="utf-8"))
    assert len(found) >= 8
    records = [word for command in found.values() for word in command.split() if word.startswith("docs/records/")]
    assert records
    assert all((draw_figures.ROOT / record).is_dir() for record in records)


def test_all_commands_run_in_the_checkout_with_this_interpreter_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "index.md").write_text(GALLERY)
    monkeypatch.setattr(draw_figures, "GALLERY", tmp_path / "index.md")
    ran: list[str] = []

    def run(command: list[str], **options: Any) -> None:
        assert options["cwd"] == draw_figures.ROOT
        ran.append(command[-1])

    monkeypatch.setattr(subprocess, "run", run)
    draw_figures.main([])
    assert ran == [*draw_figures.commands(GALLERY).values(), draw_figures.CURVES]
    with pytest.raises(SystemExit):
        draw_figures.main(["two.png"])
    assert "'two.png' is no figure that can be drawn again" in capsys.readouterr().err
