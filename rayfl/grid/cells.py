"""The cells of a grid: which of them are finished, and how one of them, or all that are left, are run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console

from rayfl.config.loading import Overrides, load_scenario
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.config.start import Start
from rayfl.durable import write_json
from rayfl.errors import RayflError, ResourceError, ScenarioError
from rayfl.grid.differences import differences
from rayfl.grid.place import Place, with_place
from rayfl.grid.schema import Grid, folder_name
from rayfl.grid.starts import in_order
from rayfl.report.reason import one_line
from rayfl.report.status import Status, read_status
from rayfl.resolution import resolve
from rayfl.start.chain import starts_of

MARKER = "finished.json"
LOG = "run.log"
LOCK = ".lock"


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid.

    Attributes:
        place: Its row, column, seed and task.
        scenario: What is run, every default written out.
        folder: Its own.
        starts: Where models of scenarios that cells start from are kept.
        starts_digest: Of the scenarios that it starts from, as their files have them now; empty if it starts from none.
    """

    place: Place
    scenario: Scenario
    folder: Path
    starts: Path
    starts_digest: str = ""

    def __str__(self) -> str:
        return str(self.place)

    @property
    def row(self) -> str:
        """The label of its row."""
        return self.place.row

    @property
    def column(self) -> str:
        """The label of its column."""
        return self.place.column

    @property
    def digest(self) -> str:
        """Of what a finished run's figures depend on."""
        return _digest(self.scenario)

    @property
    def device(self) -> str:
        """The kind of device that it would run on now: `cpu` or `cuda`."""
        return "cuda" if self.scenario.resources.uses_cuda else "cpu"

    def finished(self) -> bool:
        """Returns whether this very scenario has been run to its end here.

        Raises:
            ScenarioError: Another scenario has, and the message says in what it differs; or this one has on another
                kind of device, whose results are not the same to the bit.
        """
        marker = self.folder / MARKER
        if not marker.exists():
            return False
        found = json.loads(marker.read_text(encoding="utf-8"))
        if found["digest"] != self.digest and not self._holds_the_same_scenario():
            before = tomllib.loads((self.folder / "scenario.toml").read_text(encoding="utf-8"))
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run of another scenario, which differs in\n"
                f"{differences(before, tomllib.loads(self.scenario.to_toml()))}\n"
                "give the same overrides as then, or another folder with --out, or remove that one to run it again"
            )
        if found.get("starts", self.starts_digest) != self.starts_digest:
            assert self.scenario.start is not None
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run that started from '{self.scenario.start.scenario}' before that "
                "scenario was changed; name another folder with --out, or remove that one to run it again"
            )
        device = found.get("device") or _device_of_hosts(self.folder)
        if device != self.device:
            raise ScenarioError(
                f"{self}: '{self.folder}' holds a run on {device}, and now cells run on {self.device}, which does not "
                "give the same bits; set resources.device and resources.gpus_per_host as they were then, or name "
                "another folder with --out, or remove that one to run it again"
            )
        return True

    def _holds_the_same_scenario(self) -> bool:
        """Whether only the schema has changed since, such as by an option that is left at its default."""
        try:
            return _digest(resolve(load_scenario(self.folder / "scenario.toml"))) == self.digest
        except ScenarioError:
            return False


class Outcome(NamedTuple):
    """A cell that was run: `error` is None, or why it failed in one line."""

    cell: Cell
    error: str | None


def _digest(scenario: Scenario) -> str:
    resolved = scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT))
    return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()


def _digest_of_starts(start: Start | None) -> str:
    """What is at its default is left out, so that a new option changes no digest."""
    scenarios = [
        link.scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT), exclude_defaults=True)
        for link in starts_of(start)
    ]
    if not scenarios:
        return ""
    return hashlib.sha256(json.dumps(scenarios, sort_keys=True).encode()).hexdigest()


def _device_of_hosts(folder: Path) -> str:
    hosts = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["hosts"]
    return str(hosts[0]["device"]).partition(":")[0]


def cells_of(grid: Grid, out: Path, overrides: Overrides = (), quick: bool = False) -> list[Cell]:
    """Returns every cell that is not skipped, in the grid's order.

    A cell's folder is `<out>/<grid>/<row>/<column>/seed_<n>`, and in a grid with tasks `task_<k>` in that. Its scenario
    has a title of its own, and every default written out.

    Args:
        grid: Its rows, columns, seeds and tasks.
        out: The folder above the grid's.
        overrides: Of all cells.
        quick: Applies the scenario's and the grid's [quick].

    Raises:
        ScenarioError: The scenario of a cell, or one that it starts from, is wrong, or names something that is not
            there; says which cell.
    """
    cells = []
    resolved: dict[tuple[str, str], Scenario] = {}
    starts: set[str] = set()
    digests: dict[str, str] = {}
    for place, scenario in grid.scenarios(overrides, quick).items():
        row, column, seed, task = place
        try:
            if (row, column) not in resolved:
                _resolve_starts(scenario, starts)
                resolved[row, column] = resolve(scenario)
        except ScenarioError as error:
            raise ScenarioError(f"grid '{grid.name}', {row} / {column}: {error}") from None
        folder = out / grid.name / folder_name(row) / folder_name(column) / f"seed_{seed}"
        folder = folder if task is None else folder / f"task_{task}"
        title = f"{grid.title or grid.name}: {place}"
        whole = with_place(resolved[row, column], place).model_copy(update={"title": title})
        key = whole.start.model_dump_json() if whole.start else ""
        if key not in digests:
            digests[key] = _digest_of_starts(whole.start)
        cells.append(Cell(place, whole, folder, out / grid.name / "starts", digests[key]))
    return cells


def _resolve_starts(scenario: Scenario, known: set[str]) -> None:
    """Checks the names and options of the scenarios that a cell starts from, each once.

    Raises:
        ScenarioError: One of them is wrong.
    """
    for key, first in starts_of(scenario.start):
        if key not in known:
            known.add(key)
            try:
                resolve(first)
            except ScenarioError as error:
                raise ScenarioError(f"start.scenario '{first.name}': {error}") from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Locks a grid's folder within the block: two processes would start each other's runs again.

    Args:
        folder: The grid's; it exists.

    Raises:
        ResourceError: Another process holds the lock, or the file system has none.
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
    """Runs one cell from its beginning, in this process; what it prints goes to its log.

    Args:
        cell: What to run; whatever its folder holds is removed.
        data_dir: Where real data lies.

    Returns:
        None, or why it failed in one line; the cell's status.json says so too, and its log has the whole error.
    """
    from rayfl.simulation import run  # PyTorch is loaded only to run

    if cell.folder.exists():
        shutil.rmtree(cell.folder)
    cell.folder.mkdir(parents=True)
    with (cell.folder / LOG).open("w", encoding="utf-8", buffering=1) as log:
        console = Console(file=log, width=120)
        try:
            # only a folder that the user named must exist, and the command line has checked that
            given = data_dir if data_dir.is_dir() else None
            run(
                cell.scenario,
                backend="inline",
                folder=cell.folder,
                data_dir=given,
                starts=cell.starts,
                console=console,
            )
        except Exception as error:  # a failed cell shall not stop the others
            said = str(error) if isinstance(error, RayflError) else traceback.format_exc()
            console.print(f"error: {said}", markup=False, highlight=False, soft_wrap=True)
            _keep_failure(cell, error)
            return one_line(error)
    write_json(
        cell.folder / MARKER,
        {"digest": cell.digest, "starts": cell.starts_digest, "device": _device_of_hosts(cell.folder)},
    )
    return None


def _keep_failure(cell: Cell, error: Exception) -> None:
    """Makes the cell's status say that it failed where the run could not: it had not begun, or its worker died."""
    status = read_status(cell.folder)
    if status is None or status["status"] != "failed":
        cell.folder.mkdir(parents=True, exist_ok=True)
        Status(cell.folder, sum(phase.rounds for phase in cell.scenario.phases)).ended_early(error)


def run_cells(
    cells: Sequence[Cell], backend: Literal["ray", "inline"], address: str | None, data_dir: Path, folder: Path
) -> Iterator[Outcome | int]:
    """Runs cells, the first ones first.

    Args:
        cells: What to run.
        backend: `inline` for one after another in this process, `ray` for side by side on a cluster.
        address: Of the cluster; see `rayfl.run`.
        data_dir: Where real data lies. Every node of the cluster must see it where it exists.
        folder: The grid's. Every node of the cluster must see it.

    Yields:
        The outcome of each cell as soon as it is there; in between, how many are running.

    Raises:
        ResourceError: There is no cluster, none that a cell fits, or a node does not see a folder.
    """
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
                cell, failure = cells[result.task], result.value
                if isinstance(failure, Exception):  # Ray lost the worker, which could not say so itself
                    _keep_failure(cell, failure)
                    failure = one_line(failure)
                yield Outcome(cell, failure)
            yield sum(_log_time(cells[index]) != before for index, before in waiting.items())


def planned(cells: Sequence[Cell], finished: Iterable[Cell] = ()) -> dict[Cell, float]:
    """Returns cells in the order in which they are to begin, and about how many client updates each takes.

    The first cell of every start that is to be run comes first, and its client updates include the start's.

    Args:
        cells: What is to be run.
        finished: Cells that have been run, and with them their starts.
    """
    order = in_order([cell.scenario for cell in cells], [cell.scenario for cell in finished])
    return {cells[index]: work for index, work in order}


def _log_time(cell: Cell) -> int | None:
    """When its log was last written, by an earlier run or this one."""
    try:
        return (cell.folder / LOG).stat().st_mtime_ns
    except FileNotFoundError:
        return None
