"""Folders of runs as rayfl leaves them, with curves that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rayfl.runs.archive import GridPlace


def write_run(
    folder: Path,
    title: str | GridPlace,
    seed: int,
    columns: Mapping[str, Sequence[float | None]],
    rounds: Sequence[int] = (2, 4, 6),
    phases: Sequence[tuple[str, int]] = (("federated", 6),),
    headline: str = "accuracy",
) -> Path:
    """Writes a finished run of 20 clients, 4 in a round, and returns its folder.

    Args:
        folder: The folder to make.
        title: Of its scenario; or its place in a grid.
        seed: Its seed.
        columns: Of metrics.jsonl, a value for each evaluated round.
        rounds: The evaluated rounds.
        phases: Name and number of rounds of each phase.
        headline: The metric that ranks its rounds.
    """
    folder.mkdir(parents=True)
    tables = "".join(
        f'[[phases]]\nname = "{name}"\nschedule = "parallel"\nrounds = {count}\ncohort = 0.2\n'
        for name, count in phases
    )
    named = title if isinstance(title, str) else f"{title.row} in {title.column}"
    text = f'name = "s"\ntitle = "{named}"\nseed = {seed}\n[data]\nname = "digits"\nclients = 20\n{tables}'
    (folder / "scenario.toml").write_text(text, encoding="utf-8")
    lines = []
    for place, number in enumerate(rounds):
        row: dict[str, Any] = {"phase": phase_of(number, phases), "round": number, "round_in_phase": number}
        lines.append(json.dumps(row | {name: values[place] for name, values in columns.items()}) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    higher = headline == "accuracy"
    of_headline = {"metric": headline, "higher_is_better": higher, "is_share": higher, "on": "test", "phases": []}
    in_grid = None if isinstance(title, str) else title._asdict()
    environment = {"place": in_grid, "headline": of_headline, "data": {"name": "digits", "source": "generated"}}
    (folder / "status.json").write_text(json.dumps({"status": "finished", "committed_rounds": rounds[-1]}))
    (folder / "environment.json").write_text(json.dumps(environment))
    return folder


def phase_of(number: int, phases: Sequence[tuple[str, int]]) -> str:
    """The phase of a round."""
    end = 0
    for name, count in phases:
        end += count
        if number <= end:
            return name
    raise ValueError(f"round {number} is after the last phase")
