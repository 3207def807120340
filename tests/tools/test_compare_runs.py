from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tools.compare_runs import main, smoothed


def a_run(folder: Path, name: str, seed: int, accuracy: list[float]) -> Path:
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(f'name = "{name}"\nseed = {seed}\n')
    lines = [json.dumps({"round": 5 * n, "test_accuracy": value}) for n, value in enumerate(accuracy, start=1)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_runs_are_compared_in_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = a_run(tmp_path / "a", "cyclic", 0, [0.1, 0.5, 0.7, 0.6, 0.6, 0.6, 0.5])
    second = a_run(tmp_path / "b", "fedavg", 1, [0.2, 0.3])
    main([str(tmp_path / "both.png"), str(first), str(second)])
    printed = capsys.readouterr().out
    assert "| `cyclic` | 0 | 70.00 % | 15 | 60.00 % | 50.00 % |" in printed
    assert "| `fedavg` | 1 | 30.00 % | 10 | 25.00 % | 30.00 % |" in printed
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_runs_of_a_grid_are_called_by_row_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "grid" / "MOON" / "with_P1" / "seed_3", "cyclic", 3, [0.5])
    main([str(tmp_path / "one.png"), str(run)])
    assert "| `MOON, with_P1` | 3 | 50.00 % | 5 | 50.00 % | 50.00 % |" in capsys.readouterr().out


def test_smoothing_keeps_the_ends_and_straight_lines() -> None:
    line = np.arange(7.0)
    assert smoothed(line, 5) == pytest.approx(line)
    assert smoothed(np.array([0.0, 9.0, 0.0, 0.0]), 3) == pytest.approx([0, 3, 3, 0])
    assert smoothed(line, 1).tolist() == line.tolist()
