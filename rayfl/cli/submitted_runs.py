"""What `rayfl submit`, `attach`, `status` and `stop` do; `rayfl.cli.cluster` parses them."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.text import Text

from rayfl.cli.exit_status import INTERRUPTED
from rayfl.cli.options import run_options
from rayfl.console import TextTable, bar_on, print_line, table_console
from rayfl.errors import RayflError
from rayfl.runs.status import LOST, readable_status
from rayfl.service.handle import Handle, attach, names_under_way
from rayfl.service.run_actor import LOG
from rayfl.service.submission import submit_with

ASKS_EVERY_S = 1.0


def submit_run(options: argparse.Namespace, console: Console) -> int:
    """Submits a scenario; prints the run's name and folder, or follows the run."""
    handle = submit_with(
        run_options(options), options.name, options.overrides, options.quick, options.run, options.priority, console
    )
    if options.attach:
        return follow(handle, console)
    print_line(console, "submitted ", (handle.name, "bold"), f", records: {handle.folder}")
    console.print(Text(f"follow it with `rayfl attach {handle.name}`; end it with `rayfl stop {handle.name}`"))
    return 0


def follow_run(options: argparse.Namespace, console: Console) -> int:
    """Follows a submitted run; see `follow`."""
    return follow(attach(options.run, options.address), console)


def print_status(options: argparse.Namespace, console: Console) -> int:
    """Prints a table of the named run, or of all active runs and of those that have ended in a folder."""
    active: list[tuple[Handle, dict[str, Any]]] = []
    for name in [options.run] if options.run else names_under_way(options.address):
        try:
            handle = attach(name, options.address)
            active.append((handle, handle.status()))
        except RayflError:
            if options.run:
                raise
            continue  # it has ended in the meantime
    ended = [] if options.run else _ended(options.out, {handle.folder.resolve() for handle, _ in active})
    if not active:
        console.print("no submitted run is active on this cluster")
    if not active and not ended:
        return 0
    runs = [*((handle.name, status) for handle, status in active), *ended]
    header = "", "round", "phase", "workers", "nodes", "since (UTC)", "status"
    TextTable("submitted runs", header, [_row(name, status) for name, status in runs]).show(table_console())
    for handle, _ in active:
        print_line(console, f"records of {handle.name}: {handle.folder}")
    return 0


def _ended(out: Path, active: set[Path]) -> list[tuple[str, dict[str, Any]]]:
    """The folders of submitted runs in `out` that have ended, by name, with their status."""
    found: list[tuple[str, dict[str, Any]]] = []
    for log in sorted(out.glob(f"*/{LOG}")):
        status = readable_status(log.parent)
        if status is not None and log.parent.resolve() not in active:
            found.append((log.parent.name, status))
    return found


def _row(name: str, status: dict[str, Any]) -> tuple[str, ...]:
    rounds = f"{status['committed_rounds']} of {status['rounds']}" if "rounds" in status else "–"
    since = str(status.get("started", "–")).replace("T", " ").removesuffix("+00:00")
    state = status["status"] if not status.get("reason") else f"{status['status']}: {status['reason']}"
    workers, nodes = (str(status.get(key) or "–") for key in ("workers", "nodes"))
    return name, rounds, status.get("phase") or "–", workers, nodes, since, state


def stop_run(options: argparse.Namespace, console: Console) -> int:
    """Ends a run after the current round."""
    handle = attach(options.run, options.address)
    handle.stop()
    print_line(console, f"{handle.name} will end after the current round; records: {handle.folder}")
    return 0


def follow(handle: Handle, console: Console) -> int:
    """Prints the run's output until the run ends; on a terminal, a progress bar below it.

    Returns:
        The exit status: 0 if the run finished, 1 if it failed, 130 if it was interrupted; 0 after Ctrl-C, which leaves
        the run running.
    """
    bar = bar_on(console, TextColumn("{task.fields[doing]}", markup=False))
    try:
        with bar or nullcontext():
            _print_to_the_end(handle, console, bar)
    except KeyboardInterrupt:
        print_line(console, f"detached: {handle.name} keeps running; end it with `rayfl stop {handle.name}`")
        return 0
    ended = handle.status()  # from the run's process, which stays for a moment, or from its folder
    if ended["status"] == "finished":
        return 0
    resumed = "" if ended["status"] != LOST else f"; continue with `{handle.resuming}`"
    print_line(console, f"{handle.name} {ended['status']}: {ended['reason']}{resumed}", style="red")
    return INTERRUPTED if ended["status"] == "interrupted" else 1


def _print_to_the_end(handle: Handle, console: Console, bar: Progress | None) -> None:
    task, place, over, wait_s = bar.add_task(handle.name, total=None, doing="") if bar else None, 0, False, 0.0
    while not over:
        over, wait_s = handle.over(wait_s), ASKS_EVERY_S  # asked before the last output is read
        text, place = handle.printed(place)
        if text:
            print_line(console, Text.from_ansi(text.rstrip("\n")))
        if bar is not None and task is not None:
            bar.update(task, visible=not over, **({} if over else _shown(handle.status())))


def _shown(status: dict[str, Any]) -> dict[str, Any]:
    """The fields of the progress bar for a status."""
    if status["status"] == "running":
        done, rounds = status["committed_rounds"], status["rounds"]
        doing = f"{status.get('phase') or 'starting'}, round {done} of {rounds}"
        return {"total": rounds, "completed": done, "doing": doing}
    return {"doing": f"{status['status']}: {status['reason']}" if status.get("reason") else status["status"]}
