"""Runs the cells of a grid."""

from __future__ import annotations

import fcntl
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rayfl.command_line.console import log_console
from rayfl.durable import write_json
from rayfl.errors import RayflError, ResourceError
from rayfl.grid.begun import begin, clear, has_begun
from rayfl.grid.cells import MARKER, Cell, device_of_hosts
from rayfl.grid.starts import in_order
from rayfl.passwords import without_passwords
from rayfl.report.reason import one_line
from rayfl.report.status import Status, readable_status

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


def run_cell(cell: Cell, data_dir: Path) -> str | None:
    """Runs one cell in this process; its output goes to its log.

    If a run of this cell was interrupted, or its worker died, it continues from its last checkpoint.

    Args:
        cell: The cell; files of other runs in its folder are removed.
        data_dir: The folder of real data.

    Returns:
        None, or the reason of a failure in one line; status.json has it too, and the log has the whole error.
    """
    from rayfl.lifecycle.in_place import How, run_in_place
    from rayfl.lifecycle.run_lock import HeldError
    from rayfl.simulation import run  # loads PyTorch

    # only a folder that the user named must exist, and the command line has checked it
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
    if not same:
        (cell.folder / LOG).unlink(missing_ok=True)
    console = log_console(cell.folder / LOG)
    try:
        run_in_place(cell.folder, same, carry_out, lambda: clear(cell, but=LOG), say)
    except Exception as error:  # a failed cell must not stop the others
        said = str(error) if isinstance(error, RayflError) else traceback.format_exc()
        console.print(f"error: {without_passwords(said)}", markup=False, highlight=False, soft_wrap=True)
        if not isinstance(error, HeldError):
            _keep_failure(cell, error)
        return one_line(error)
    write_json(cell.folder / MARKER, cell.identity | {"device": device_of_hosts(cell.folder)})
    return None


def _keep_failure(cell: Cell, error: Exception) -> None:
    """Writes the failure to status.json if the run could not: it had not begun, or its worker died."""
    status = readable_status(cell.folder)
    if status is None or status["status"] != "failed":
        cell.folder.mkdir(parents=True, exist_ok=True)
        Status(cell.folder, sum(phase.rounds for phase in cell.scenario.phases)).ended_early(error)


def run_cells(
    cells: Sequence[Cell], backend: Literal["ray", "inline"], address: str | None, data_dir: Path, folder: Path
) -> Iterator[Outcome | int]:
    """Runs cells in the given order.

    Args:
        cells: The cells to run.
        backend: `inline` for one after another in this process, `ray` for in parallel on a cluster.
        address: Address of the cluster; see `rayfl.run`.
        data_dir: The folder of real data. If it exists, every node of the cluster must be able to access it.
        folder: The folder of the grid. Every node of the cluster must be able to access it.

    Yields:
        The outcome of each cell as soon as it ends; in between, the number of running cells.

    Raises:
        ResourceError: There is no cluster, a cell does not fit into it, or a node cannot access a folder.
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
