from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rayfl.analysis.compare_runs import main, smoothed


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


def records(code: dict[str, str], digest: str, files: bool = False, seed: int = 0) -> str:
    read = [{"path": "x.npz", "sha256": digest}] if files else []
    return json.dumps({"code": code, "data": {"name": "mine", "seed": seed, "files": read, "digest": digest}})


def test_other_versions_of_the_same_code_and_data_are_told_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = (a_run(tmp_path / name, "own", seed, [0.5]) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    for folder in (a, b, c):
        with (folder / "scenario.toml").open("a") as scenario:
            scenario.write('[data]\nname = "mine"\n')
    (a / "environment.json").write_text(records({"mine": "1", "net": "1"}, "1"))
    (b / "environment.json").write_text(records({"mine": "2", "net": "1"}, "2"))
    (c / "environment.json").write_text(records({"mine": "2"}, "3", seed=1))
    command = [str(tmp_path / "all.png"), *map(str, (a, b, c))]
    main(command)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Not the same")]
    assert told == [
        f"Not the same code of `mine`: {a} | {b}, {c}.",
        f"Not the same data of `mine` with seed 0: {a} | {b}.",
    ]
    for folder, digest, seed in ((a, "1", 0), (b, "1", 0), (c, "2", 1)):
        (folder / "environment.json").write_text(records({}, digest, files=True, seed=seed))
    main(command)
    assert f"Not the same data of `mine`: {a}, {b} | {c}." in capsys.readouterr().out.splitlines()
    (c / "environment.json").unlink()
    main(command)
    assert "Not the same" not in capsys.readouterr().out


def test_smoothing_keeps_the_ends_and_straight_lines() -> None:
    line = np.arange(7.0)
    assert smoothed(line, 5) == pytest.approx(line)
    assert smoothed(np.array([0.0, 9.0, 0.0, 0.0]), 3) == pytest.approx([0, 3, 3, 0])
    assert smoothed(line, 1).tolist() == line.tolist()
