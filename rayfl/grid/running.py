"""How a cell of a grid, or all that are left, are run."""

from __future__ import annotations

import fcntl
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console

from rayfl.durable import write_json
from rayfl.errors import RayflError, ResourceError
from rayfl.grid.begun import begin, clear, has_begun
from rayfl.grid.cells import MARKER, Cell, device_of_hosts
from rayfl.grid.starts import in_order
from rayfl.report.reason import one_line
from rayfl.report.status import Status, read_status

LOG = "run.log"
LOCK = ".lock"


class Outcome(NamedTuple):
    """A cell that was run: `error` is None, or why it failed in one line."""

    cell: Cell
    error: str | None


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
    """Runs one cell, in this process; what it prints goes to its log.

    A run of this very cell that was interrupted, or whose worker died, goes on from its last checkpoint.

    Args:
        cell: What to run; what its folder holds of another run is removed.
        data_dir: Where real data lies.

    Returns:
        None, or why it failed in one line; the cell's status.json says so too, and its log has the whole error.
    """
    from rayfl.lifecycle.in_place import How, run_in_place
    from rayfl.simulation import run  # PyTorch is loaded only to run

    # only a folder that the user named must exist, and the command line has checked that
    given, same = data_dir if data_dir.is_dir() else None, has_begun(cell)

    def carry_out(how: How) -> None:
        where: Any = {"resume": cell.folder}
        if how == "begin":
            where = {"folder": cell.folder}
            begin(cell)
        run(cell.scenario, backend="inline", data_dir=given, starts=cell.starts, console=console, **where)

    def say(text: str) -> None:
        console.print(f"warning: {text}", markup=False, highlight=False, soft_wrap=True)

    cell.folder.mkdir(parents=True, exist_ok=True)
    with (cell.folder / LOG).open("a" if same else "w", encoding="utf-8", buffering=1) as log:
        console = Console(file=log, width=120, force_jupyter=False)  # in a notebook, rich ignores `file`
        try:
            run_in_place(cell.folder, same, carry_out, lambda: clear(cell, but=LOG), say)
        except Exception as error:  # a failed cell shall not stop the others
            said = str(error) if isinstance(error, RayflError) else traceback.format_exc()
            console.print(f"error: {said}", markup=False, highlight=False, soft_wrap=True)
            _keep_failure(cell, error)
            return one_line(error)
    write_json(cell.folder / MARKER, cell.identity | {"device": device_of_hosts(cell.folder)})
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
    from rayfl.cluster.repeating import resources_of
    from rayfl.cluster.tasks import Task, run_tasks

    waiting = dict(enumerate(map(_log_time, cells)))
    tasks = [Task((cell, data_dir), resources_of(cell.scenario)) for cell in cells]
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
