"""`rayfl scale`: measures what grows, and says what breaks first."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser, refuse
from rayfl.console import print_line
from rayfl.errors import ScenarioError

EXAMPLES = """\
examples:
  {prog}
  {prog} --only cohort hosts --hosts 1,2,4 --cohort 100,1000,10000 --budget 20
  {prog} --clients 1e5,1e6,1e7 --out scale-of-my-cluster
"""

NAMES = ("clients", "cohort", "hosts", "params", "data", "states")
"""The names of `AXES`, which the parser knows without loading NumPy."""


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's options."""
    parser = command_parser(prog, "Measure time, memory and bytes of short runs as they grow.", EXAMPLES)
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, metavar="AXIS", help=f"of {', '.join(NAMES)} (default: all)"
    )
    for name in NAMES:
        kind = _numbers if name == "data" else _whole_numbers
        parser.add_argument(f"--{name}", type=kind, metavar="N,N", help=f"values of {name}, separated by commas")
    parser.add_argument("--budget", type=_minutes, default=10, metavar="MINUTES", help="for everything (default: 10)")
    parser.add_argument("--out", type=Path, default=Path("scale"), metavar="FOLDER", help="default: scale")
    parser.set_defaults(execute=_execute)
    return parser


def main(arguments: Sequence[str], prog: str) -> int:
    """Runs the command; `exit_status` explains what it returns. Wrong options exit with 2."""
    of_command = parser(prog)
    options = of_command.parse_args(arguments)
    if options.only:
        refuse(of_command, options, "on the axes of --only", *(name for name in NAMES if name not in options.only))
    options.command = shlex.join([*prog.split(), *arguments])
    return exit_status(lambda: options.execute(options))


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers such as 10,1e3") from None
    if not all(0 < number < 1e12 for number in numbers):
        raise argparse.ArgumentTypeError(f"'{text}' must have numbers above 0 and below 1e12")
    return tuple(sorted(numbers))


def _whole_numbers(text: str) -> tuple[float, ...]:
    numbers = _numbers(text)
    if any(number != int(number) for number in numbers):
        raise argparse.ArgumentTypeError(f"'{text}' must have whole numbers")
    return numbers


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of minutes above 0")
    return minutes


def _execute(options: argparse.Namespace) -> int:
    from rayfl.console import table_console
    from rayfl.studies.scale.picture import draw
    from rayfl.studies.scale.study import AXES, COLUMNS, as_markdown, first_to_break, machine_bytes, points, rows, save

    if not Path("/proc/self/smaps_rollup").exists():
        raise ScenarioError("rayfl scale reads the memory of processes from Linux's /proc, which this system lacks")
    axes = {name: getattr(options, name) or AXES[name].values for name in options.only or NAMES}
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(f"--out {options.out}: {error.strerror}; name a folder that can be written to") from None
    found, console = [], table_console()
    for point in points(axes, 60 * options.budget):
        found.append(point)
        ((unit, value, *cells),) = rows([point])
        words = [f"{name} {cell}" for name, cell in zip(COLUMNS[2:], cells, strict=True)]
        print_line(console, f"{value} {unit}: {point.failure or ', '.join(words)}")
        save(found, options.out / "scale.json")
    measured = sum(point.cost is not None for point in found)
    left_out = sum(map(len, axes.values())) - len(found)
    draw(found, options.out / "scale.png")
    limit = machine_bytes()
    (options.out / "scale.md").write_text(as_markdown(found, options.command, limit), encoding="utf-8")
    for line in first_to_break(found, limit):
        print_line(console, f"first to break: {line}")
    print_line(console, f"{options.out}: {measured} measurements, {left_out} left out by the budget")
    return 0 if measured == len(found) else 1
