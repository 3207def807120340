"""The cells of a grid: which of them are finished, and how one is run, or all that are left."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from rayfl.algorithms.building import with_algorithm_defaults
from rayfl.config.grid import Grid, folder_name
from rayfl.config.loading import Overrides
from rayfl.config.phase import Bernoulli, BySize, Cohort, Given
from rayfl.config.scenario import Scenario
from rayfl.durable import written_whole
from rayfl.errors import RayflError, ResourceError, ScenarioError

MARKER = "finished.json"
LOG = "run.log"
LOCK = ".lock"
NO_MATTER = {"name", "title", "resources"}
"""Keys of a scenario that a finished run's figures do not depend on."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid, and the folder that is its own."""

    row: str
    column: str
    seed: int
    scenario: Scenario
    folder: Path

    def __str__(self) -> str:
        return f"{self.row} / {self.column} / seed {self.seed}"

    @property
    def digest(self) -> str:
        """Of the resolved scenario."""
        resolved = self.scenario.model_dump(mode="json", exclude=NO_MATTER)
        return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()

    def finished(self) -> bool:
        """Whether this very scenario has been run to its end here.

        Raises:
            ScenarioError: another one has; says in what it differs.
        """
        marker = self.folder / MARKER
        if not marker.exists():
            return False
        if json.loads(marker.read_text(encoding="utf-8"))["digest"] == self.digest:
            return True
        before = tomllib.loads((self.folder / "scenario.toml").read_text(encoding="utf-8"))
        raise ScenarioError(
            f"{self}: '{self.folder}' holds a run of another scenario, which differs in\n"
            f"{_differences(before, tomllib.loads(self.scenario.to_toml()))}\n"
            "give the same overrides as then, or another folder with --out, or remove that one to run it again"
        )


class Outcome(NamedTuple):
    """A cell that was run: `error` is None, or why it failed."""

    cell: Cell
    error: str | None


def cells_of(grid: Grid, out: Path, overrides: Overrides = (), quick: bool = False) -> list[Cell]:
    """Every cell that is not skipped, in the grid's order; its folder is `<out>/<grid>/<row>/<column>/seed_<n>`.

    Its scenario has a title of its own, and its algorithms' defaults written out.

    Raises:
        ScenarioError: names the cell whose scenario is wrong.
    """
    cells = []
    for (row, column, seed), scenario in grid.scenarios(overrides, quick).items():
        folder = out / grid.name / folder_name(row) / folder_name(column) / f"seed_{seed}"
        title = f"{grid.title or grid.name}: {row} / {column} / seed {seed}"
        try:
            resolved = with_algorithm_defaults(scenario).model_copy(update={"title": title})
            cells.append(Cell(row, column, seed, resolved, folder))
        except ScenarioError as error:
            raise ScenarioError(f"grid '{grid.name}', {row} / {column}: {error}") from None
    return cells


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds a grid's folder, which is there: two processes would begin each other's runs again.

    Raises:
        ResourceError: another process holds it, or its file system knows no locks.
    """
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResourceError(
                f"another process is running this grid in '{folder}': wait for it, or name another folder with --out"
            ) from None
        except OSError as error:
            raise ResourceError(
                f"cannot lock '{folder}': {error.strerror}; name a folder on another file system with --out"
            ) from error
        yield


def run_cell(cell: Cell, data_dir: Path) -> str | None:
    """Runs one cell from its beginning, in this process; what it says goes to its log. Returns why it failed."""
    from rayfl.simulation import run  # PyTorch is loaded only to run

    if cell.folder.exists():
        shutil.rmtree(cell.folder)
    cell.folder.mkdir(parents=True)
    with (cell.folder / LOG).open("w", encoding="utf-8", buffering=1) as log:
        console = Console(file=log, width=120)
        try:
            run(cell.scenario, backend="inline", folder=cell.folder, data_dir=data_dir, console=console)
        except Exception as error:  # a failed cell shall not stop the others
            said = str(error) if isinstance(error, RayflError) else traceback.format_exc()
            console.print(f"error: {said}", markup=False, highlight=False, soft_wrap=True)
            return said.strip().splitlines()[0 if isinstance(error, RayflError) else -1]
    with written_whole(cell.folder / MARKER) as path:
        path.write_text(json.dumps({"digest": cell.digest}) + "\n", encoding="utf-8")
    return None


def run_cells(
    cells: Sequence[Cell], backend: Literal["ray", "inline"], address: str | None, data_dir: Path, folder: Path
) -> Iterator[Outcome | int]:
    """Runs cells: one after another in this process, or side by side on a Ray cluster, those with most visits first.

    folder: the grid's. Every node of the cluster must see it, and data_dir where it exists.

    Yields:
        The outcome of each, as soon as it is there; in between, how many are running.

    Raises:
        ResourceError: no cluster, none that a cell fits, or a node that does not see a folder.
    """
    cells = sorted(cells, key=visits, reverse=True)
    if backend == "inline":
        for cell in cells:
            yield 1
            yield Outcome(cell, run_cell(cell, data_dir))
        return
    from rayfl.cluster.tasks import Task, run_tasks

    waiting = dict(enumerate(map(_log_time, cells)))
    tasks = [Task((cell, data_dir), cell.scenario.resources) for cell in cells]
    with closing(run_tasks(run_cell, tasks, address, folder, data_dir)) as results:
        for result in results:
            if result is not None:
                del waiting[result.task]
                error = result.value
                yield Outcome(cells[result.task], None if error is None else str(error))
            yield sum(_log_time(cells[index]) != before for index, before in waiting.items())


def visits(cell: Cell) -> float:
    """About how many clients train in the whole run: what a run takes, beside others of its kind."""
    clients = cell.scenario.data.clients or 1
    return sum(phase.rounds * _cohort_size(phase.cohort, clients) for phase in cell.scenario.phases)


def _cohort_size(cohort: Cohort, clients: int) -> float:
    match cohort:
        case Bernoulli(bernoulli=share) | float(share):
            return share * clients
        case Given(given=lists):
            return sum(map(len, lists)) / len(lists)
        case BySize(by_size=number) | int(number):
            return number


def _log_time(cell: Cell) -> int | None:
    """When its log was last written, by an earlier run or this one."""
    try:
        return (cell.folder / LOG).stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], named: int = 5) -> str:
    old, new = (dict(_leaves(tables)) for tables in (before, now))
    keys = [key for key in old | new if old.get(key) != new.get(key) and key.partition(".")[0] not in NO_MATTER]
    lines = [f"  {key}: {old.get(key, 'not given')!r} then, {new.get(key, 'not given')!r} now" for key in keys[:named]]
    return "\n".join([*lines, *([f"  and {len(keys) - named} more"] if len(keys) > named else [])])


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(key path, value) of everything in nested tables and lists of tables."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(inner, Mapping) for inner in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{index}")
    else:
        yield path, value
