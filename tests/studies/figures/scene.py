"""Folders of finished runs, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Columns = Mapping[str, Sequence[float | None]]


def a_run(
    folder: Path,
    title: str,
    seed: int = 0,
    columns: Columns | Sequence[float] = (0.5,),
    *,
    every: int = 5,
    scenario: str = "",
    environment: Mapping[str, Any] | None = None,
    phase: str = "federated",
) -> Path:
    """A run that evaluated every `every` rounds; a sequence is its test accuracy."""
    columns = columns if isinstance(columns, Mapping) else {"test_accuracy": columns}
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(f'name = "run"\ntitle = "{title}"\nseed = {seed}\n{scenario}')
    rows = zip(*columns.values(), strict=True)
    lines = [
        {"phase": phase, "round": every * number, **dict(zip(columns, values, strict=True))}
        for number, values in enumerate(rows, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if environment is not None:
        (folder / "environment.json").write_text(json.dumps(environment))
    return folder


def with_tasks(folder: Path, scores: Mapping[str, Sequence[Sequence[float]]]) -> Path:
    """A grid of one column; of every row, the last accuracy of each task, of each seed."""
    for row, tasks in scores.items():
        for task, seeds in enumerate(tasks):
            for seed, value in enumerate(seeds):
                title = f"Grid: {row} / column / seed {seed} / task {task}"
                a_run(folder / row / "column" / f"seed_{seed}" / f"task_{task}", title, seed, [value])
    return folder
