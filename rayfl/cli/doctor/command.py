"""`rayfl doctor`: checks whether this machine is ready for rayfl, and says what to do."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from rich.table import Table
from rich.text import Text

from rayfl.cli.doctor.check import Check, in_gb
from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser
from rayfl.console import PIPE_WIDTH, table_console

EXAMPLES = """\
examples:
  {prog}
  {prog} --json
  {prog} --cluster                 # also runs a task on each node of the cluster that this machine belongs to
  {prog} --cluster 10.0.0.1:6379

It downloads nothing, and connects to no address other than that of a Ray cluster. The exit status is 1 if there is a
problem. A warning means that rayfl runs, but slower or with less than you may expect.
"""

SIGNS = {"ok": Text("ok", "green"), "warning": Text("warning", "yellow"), "problem": Text("PROBLEM", "bold red")}


def main(arguments: Sequence[str] | None = None, prog: str = "rayfl doctor") -> int:
    """The command; `exit_status` explains what it returns."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "Check whether this machine is ready for rayfl, and say what to do.", EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--cluster",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="also run a task on each node of a Ray cluster (default: the one that this machine belongs to)",
    )
    return parser


def _execute(options: argparse.Namespace) -> int:
    checks = [*all_checks()]
    if options.cluster:
        from rayfl.cli.doctor.cluster import cluster_checks

        checks += cluster_checks(options.cluster)
    if options.json:
        print(json.dumps([*map(asdict, checks)], indent=1))
    else:
        print_checks(checks)
    return 1 if any(check.state == "problem" for check in checks) else 0


def all_checks() -> Iterator[Check]:
    """Checks this machine."""
    from rayfl.cli.doctor.libraries import (
        bytecode_check,
        extra_checks,
        gpu_checks,
        gpu_facts,
        installed_extras,
        library,
        library_checks,
        needed_torch,
        ray_checks,
        ray_facts,
        ray_library_check,
        uncompiled,
    )
    from rayfl.cli.doctor.machine import data_checks, disk_checks, folder_size, machine_checks, machine_facts, space_at
    from rayfl.data.files import cache_folder, data_folder

    yield from machine_checks(machine_facts())
    torch = library("torch")
    yield from library_checks(torch, library("torchvision"), needed_torch())
    yield from bytecode_check(uncompiled(), sys.dont_write_bytecode)
    if torch.version and not torch.error:
        yield from gpu_checks(gpu_facts())
    ray = library("ray")
    yield ray_library_check(ray)
    if ray.version and not ray.error:
        yield from ray_checks(ray_facts())
    yield from data_checks(data_folder(), bool(os.environ.get("RAYFL_DATA")))
    cache = cache_folder()
    yield Check("disk", "cache", f"{in_gb(folder_size(cache))} in {cache}")
    places = {"runs": Path("runs").absolute(), "cache disk": cache, "temporary": Path(tempfile.gettempdir())}
    store = Path("/dev/shm")
    yield from disk_checks(
        {name: (path, space_at(path)) for name, path in places.items()}, space_at(store) if store.is_dir() else None
    )
    yield from extra_checks(installed_extras())


def print_checks(checks: Sequence[Check]) -> None:
    """Prints checks as a table, by group, and how many warnings and problems there are."""
    console = table_console()
    table = Table("", "check", "found", box=None, pad_edge=False, show_header=False)
    for group, members in groupby(checks, attrgetter("group")):
        if console.width < PIPE_WIDTH:
            table.add_row("", Text(group, "bold"), "")
        for check in members:
            text = Text(check.found)
            if check.remedy:
                start = "\n" if console.width < PIPE_WIDTH else "; "
                text.append(f"{start}→ {check.remedy}", "dim" if check.state == "ok" else "bold")
            name = check.name if console.width < PIPE_WIDTH else f"{group}: {check.name}"
            table.add_row(SIGNS[check.state], Text(name), text)
    table.columns[-1].overflow = "fold"
    console.print(table)
    problems, warnings = (sum(check.state == state for check in checks) for state in ("problem", "warning"))
    counts = [
        f"{number} {word}{'s' * (number != 1)}" for number, word in ((problems, "problem"), (warnings, "warning"))
    ]
    console.print(f"\n{' and '.join(counts)}" if problems or warnings else "\nready: no problems and no warnings")
