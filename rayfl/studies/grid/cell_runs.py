"""Runs the cells of a grid: in which order, in which folder, and how each ended.

Scenarios that cells start from: the first cell that requires one runs it, and the others reuse its model. A cell
continues only the same run that has begun in its folder.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rayfl.config.cohort import Bernoulli, BySampler, BySize, Cohort, Explicit, Pooled
from rayfl.config.scenario import Scenario
from rayfl.console import log_console, print_line
from rayfl.errors import RayflError, ResourceError
from rayfl.files import write_json
from rayfl.passwords import without_passwords
from rayfl.privacy.release_ledger import LEDGER_FILE
from rayfl.runs.archive import RunArchive
from rayfl.runs.options import RunOptions
from rayfl.runs.start_chain import Starting, starts_of
from rayfl.runs.status import Status, readable_status
from rayfl.studies.grid.cells import MARKER, Cell, written_scenario
from rayfl.wording import one_line

if TYPE_CHECKING:
    from rayfl.runs.preparation import Prepared

BEGUN = "begun.json"


def begin(cell: Cell) -> None:
    """Records that a run of this cell begins in its folder."""
    write_json(cell.folder / BEGUN, _what(cell))


def has_begun(cell: Cell) -> bool:
    """Whether a run with the scenario, starts, weights, code and device of this cell has begun in its folder."""
    try:
        return bool(json.loads((cell.folder / BEGUN).read_text(encoding="utf-8")) == _what(cell))
    except (FileNotFoundError, ValueError):
        return False


def could_go_on(cell: Cell) -> bool:
    """Whether a run in its folder, which may be of other settings, has a checkpoint to continue from."""
    if not cell.folder.exists():
        return False
    from rayfl.runs.checkpoints import Checkpoints  # loads PyTorch

    return Checkpoints(cell.folder, 1).any()


def clear(cell: Cell, but: str) -> None:
    """Clears the folder of a cell for a new run; one with a checkpoint or a ledger is moved beside the folder instead.

    Args:
        cell: The cell.
        but: The name of a file that stays.

    Raises:
        ResourceError: Something cannot be removed.
    """
    from rayfl.runs.resume import making_way, move_aside  # loads PyTorch

    if (cell.folder / LEDGER_FILE).exists() or could_go_on(cell):
        move_aside(cell.folder, but)
        return
    with making_way(cell.folder):
        for path in cell.folder.iterdir():
            if path.name == but:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _what(cell: Cell) -> dict[str, object]:
    return {**cell.identity, "code": dict(cell.code), "device": cell.device}


def in_order(scenarios: Sequence[Scenario], made: Iterable[Scenario] = ()) -> list[tuple[int, float]]:
    """Orders scenarios such that few wait for a start that another one is running.

    The first scenario of every start comes before all others. Within both groups the longest come first; among equally
    long ones, those whose start began first.

    Args:
        scenarios: The scenarios to be run.
        made: Scenarios that have been run, so their starts exist.

    Returns:
        Positions in `scenarios`, each with its client updates (see `client_updates`), including those of the starts
        that it runs.
    """
    chains: dict[str, list[Starting]] = {}
    links = [_chain(scenario, chains) for scenario in scenarios]
    seen = {link.key for scenario in made for link in _chain(scenario, chains)}
    first: list[tuple[int, float]] = []
    others: list[tuple[int, float]] = []
    for index, scenario in enumerate(scenarios):
        new = {link.key: link.scenario for link in links[index] if link.key not in seen}
        seen |= set(new)
        work = client_updates(scenario) + sum(map(client_updates, new.values()))
        (first if new else others).append((index, work))
    first.sort(key=lambda planned: -planned[1])
    began = {links[index][0].key: position for position, (index, _) in enumerate(first)}
    others.sort(key=lambda planned: (-planned[1], began.get(links[planned[0]][0].key, 0) if links[planned[0]] else 0))
    return [*first, *others]


def client_updates(scenario: Scenario) -> float:
    """Returns the approximate number of client updates of a run: its cost relative to similar runs."""
    clients = scenario.data.clients or 1
    return sum(phase.rounds * _cohort_size(phase.settings.cohort, clients) for phase in scenario.phases)


def _chain(scenario: Scenario, known: dict[str, list[Starting]]) -> list[Starting]:
    if scenario.start is None or scenario.start.scenario is None:
        return []
    key = scenario.start.model_dump_json()
    if key not in known:
        known[key] = list(starts_of(scenario.start))
    return known[key]


def _cohort_size(cohort: Cohort | Pooled, clients: int) -> float:
    match cohort:
        case Bernoulli(bernoulli=share) | float(share):
            return share * clients
        case Explicit(explicit=lists):
            return sum(map(len, lists)) / len(lists)
        case BySize(by_size=number) | int(number):
            return number
        case Pooled():
            return clients
        case BySampler():  # unknown before it draws
            return clients


LOG = "run.log"
LOCK = ".lock"


class Outcome(NamedTuple):
    """A cell that was run; `error` is the reason of a failure in one line, or None."""

    cell: Cell
    error: str | None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Locks the folder of a grid within the block: two processes would restart each other's runs.

    Args:
        folder: The folder of the grid, which exists.

    Raises:
        ResourceError: Another process holds the lock, or the file system does not support locks.
    """
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResourceError(
                f"another process is running this grid in '{folder}': wait for it, or choose another folder with --out"
            ) from None
        except OSError as error:
            raise ResourceError(
                f"cannot lock '{folder}': {error.strerror}; choose a folder on another file system with --out"
            ) from error
        yield


def run_cell(cell: Cell, data_dir: Path, prepared: Prepared | None = None) -> str | None:
    """Runs one cell in this process; its output goes to its log.

    If a run of this cell was interrupted, or its worker died, it continues from its last checkpoint.

    Args:
        cell: The cell; files of other runs in its folder are removed.
        data_dir: The folder of real data.
        prepared: Holds the data of the latest cell, for the next one with equal data.

    Returns:
        None, or the reason of a failure in one line; status.json has it too, and the log has the whole error.
    """
    from rayfl.runs.resume import How, run_in_place
    from rayfl.runs.run_lock import HeldError
    from rayfl.runs.session import run_with

    # only a folder that the user named must exist, and the command line has checked it
    existing_dir, same = data_dir if data_dir.is_dir() else None, has_begun(cell)

    def run(how: How) -> None:
        options = RunOptions(backend="inline", data_dir=existing_dir, starts=cell.starts, place=cell.place)
        if how == "begin":
            begin(cell)
            options = replace(options, folder=cell.folder)
        else:
            options = replace(options, resume=cell.folder)
        run_with(options, cell.scenario, console=console, prepared=prepared)

    def say(text: str) -> None:
        print_line(console, f"warning: {text}")

    cell.folder.mkdir(parents=True, exist_ok=True)
    if not same:
        (cell.folder / LOG).unlink(missing_ok=True)
    console = log_console(cell.folder / LOG)
    try:
        run_in_place(cell.folder, same, run, lambda: clear(cell, but=LOG), say)
        cell.check_scenario()  # a run that somebody resumed to other rounds may have finished meanwhile
    except Exception as error:  # a failed cell must not stop the others
        message = str(error) if isinstance(error, RayflError) else traceback.format_exc()
        print_line(console, f"error: {without_passwords(message)}")
        if not isinstance(error, HeldError):
            _keep_failure(cell, error)
        return one_line(error)
    marker = {"device": RunArchive(cell.folder).device, "written": written_scenario(cell.folder)}
    write_json(cell.folder / MARKER, cell.identity | marker)
    return None


def _keep_failure(cell: Cell, error: Exception) -> None:
    """Writes the failure to status.json if the run could not: it had not begun, or its worker died."""
    status = readable_status(cell.folder)
    if status is None or status["status"] not in ("failed", "finished"):
        cell.folder.mkdir(parents=True, exist_ok=True)
        Status(cell.folder, sum(phase.rounds for phase in cell.scenario.phases)).ended_early(error)


def run_cells(
    cells: Sequence[Cell], options: RunOptions, folder: Path, prepared: Prepared | None = None
) -> Iterator[Outcome | int]:
    """Runs cells in the given order.

    Args:
        cells: The cells to run.
        options: With backend `inline` cells run one after another in this process, with `ray` in parallel on a cluster.
            The folder of real data is absolute; if it exists, every node of the cluster must be able to access it.
        folder: The folder of the grid. Every node of the cluster must be able to access it.
        prepared: What cells that run in this process share.

    Yields:
        The outcome of each cell as soon as it ends; in between, the number of running cells.

    Raises:
        ResourceError: There is no cluster, a cell does not fit into it, or a node cannot access a folder.
    """
    assert isinstance(options.data_dir, Path)
    data_dir = options.data_dir
    if options.backend == "inline":
        for cell in cells:
            yield 1
            yield Outcome(cell, run_cell(cell, data_dir, prepared))
        return
    from rayfl.backends.ray.placement import resources_of
    from rayfl.backends.ray.tasks import RayTask, run_tasks

    waiting = dict(enumerate(map(_log_time, cells)))
    tasks = [RayTask((cell, data_dir), resources_of(cell.scenario)) for cell in cells]
    with closing(run_tasks(run_cell, tasks, options.address, folder, data_dir)) as results:
        for result in results:
            if result is not None:
                del waiting[result.task]
                cell, failure = cells[result.task], result.value
                if isinstance(failure, Exception):  # Ray lost the worker, so nothing has written the failure
                    _keep_failure(cell, failure)
                    failure = one_line(failure)
                yield Outcome(cell, failure)
            yield sum(_log_time(cells[index]) != before for index, before in waiting.items())


def planned(cells: Sequence[Cell], finished: Iterable[Cell] = ()) -> dict[Cell, float]:
    """Returns cells in the order to run them, each with its approximate number of client updates.

    The first cell of every start that has not run yet comes first, and its client updates include those of the start.

    Args:
        cells: The cells to be run.
        finished: Cells that have been run, and with them their starts.
    """
    order = in_order([cell.scenario for cell in cells], [cell.scenario for cell in finished])
    return {cells[index]: work for index, work in order}


def _log_time(cell: Cell) -> int | None:
    """Time of the last write to its log, by an earlier run or this one."""
    try:
        return (cell.folder / LOG).stat().st_mtime_ns
    except FileNotFoundError:
        return None
