"""Folders of finished runs, written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rayfl.engine.plan.headline import Headline
from rayfl.runs.archive import GridPlace

Columns = Mapping[str, Sequence[float | None]]


def a_run(
    folder: Path,
    title: str | GridPlace,
    seed: int = 0,
    columns: Columns | Sequence[float] = (0.5,),
    *,
    every: int = 5,
    scenario: str = "",
    environment: Mapping[str, Any] | None = None,
    phase: str = "federated",
) -> Path:
    """A run that evaluated every `every` rounds; a sequence is its test accuracy.

    The title may be its place in a grid. It is of generated digits and ranked by its accuracy, unless `environment`
    says something else.
    """
    columns = columns if isinstance(columns, Mapping) else {"test_accuracy": columns}
    folder.mkdir(parents=True)
    if "[[phases]]" not in scenario:
        scenario += f'\n[[phases]]\nname = "{phase}"\nschedule = "parallel"\nrounds = 100\n'
    named, place = (title, None) if isinstance(title, str) else (f"{title.row} in {title.column}", title._asdict())
    (folder / "scenario.toml").write_text(f'name = "run"\ntitle = "{named}"\nseed = {seed}\n{scenario}')
    rows = zip(*columns.values(), strict=True)
    lines = [
        {"phase": phase, "round": every * number, **dict(zip(columns, values, strict=True))}
        for number, values in enumerate(rows, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    data, headline = {"name": "digits", "source": "generated"}, asdict(Headline())
    facts = {"place": place, "data": data, "headline": headline, **(environment or {})}
    (folder / "environment.json").write_text(json.dumps(facts))
    (folder / "status.json").write_text(json.dumps({"status": "finished", "committed_rounds": lines[-1]["round"]}))
    return folder


def with_tasks(folder: Path, scores: Mapping[str, Sequence[Sequence[float]]]) -> Path:
    """A grid of one column; of every row, the last accuracy of each task, of each seed."""
    for row, tasks in scores.items():
        for task, seeds in enumerate(tasks):
            for seed, value in enumerate(seeds):
                place = GridPlace("Grid", row, "column", seed, task)
                a_run(folder / row / "column" / f"seed_{seed}" / f"task_{task}", place, seed, [value])
    return folder
