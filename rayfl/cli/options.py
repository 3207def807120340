"""Options that the commands of runs and grids share."""

from __future__ import annotations

import argparse
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rayfl.runs.centralised import Centralise
    from rayfl.runs.options import RunOptions


def folder_or_uri(text: str) -> str | Path:
    """A path, unless it is a URI."""
    return text if "://" in text else Path(text)


def command_parser(prog: str, description: str, examples: str) -> argparse.ArgumentParser:
    """An argument parser without any options yet.

    Args:
        prog: The command as the user typed it: `rayfl run`, `python -m rayfl.scenario`.
        description: One sentence for the top of the help.
        examples: Command lines for the end of the help, with `{prog}` for the command.
    """
    return argparse.ArgumentParser(
        prog=prog,
        description=fill(description, 79),
        epilog=examples.format(prog=prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_scenario(parser: argparse.ArgumentParser, kind: Literal["scenario", "grid"]) -> None:
    """Adds a scenario or grid (as `name`), its overrides, and its data folder.

    Overrides may appear anywhere among the options, so parse with `parse_intermixed_args`.
    """
    scenario = {"scenario": "the scenario", "grid": "every scenario of the grid"}[kind]
    quick = {"scenario": "the scenario's [quick] table", "grid": "the scenario's and the grid's [quick] tables"}[kind]
    parser.add_argument("name", nargs="?", metavar=kind, help=f"the name of a {kind}, or the path of a .toml file")
    parser.add_argument(
        "overrides",
        nargs="*",
        default=[],  # otherwise argparse requires one
        metavar="key.path=value",
        help=f"replace a value of {scenario}; may be repeated",
    )
    parser.add_argument("--quick", action="store_true", help=f"apply {quick}, for a first look in a minute")
    add_data_dir(parser)


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the folder with real data."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="the folder with real data (default: $RAYFL_DATA, else ~/.cache/rayfl/data)",
    )


def add_centralised(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the centralised counterpart of a scenario; see `check_centralised`."""
    parser.add_argument(
        "--centralised",
        action="store_true",
        help="train on the pooled data instead, without clients: same data, model and number of passes",
    )
    parser.add_argument(
        "--keep-momentum", action="store_true", help="with --centralised: carry the momentum from pass to pass"
    )


def check_centralised(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the command if `--keep-momentum` has no effect."""
    if not options.centralised:
        refuse(parser, options, "without --centralised", "keep_momentum")


def refuse(parser: argparse.ArgumentParser, options: argparse.Namespace, where: str, *names: str) -> None:
    """Ends the command if one of these options was given, since it has no effect.

    Args:
        parser: The command's parser.
        options: The parsed options; None, False or nothing for those that were not given.
        where: Where they have no effect, such as "with --list".
        names: Their names.
    """
    for name in names:
        if getattr(options, name):
            parser.error(f"--{name.replace('_', '-')}: has no effect {where}; leave it out")


def add_list(parser: argparse.ArgumentParser, kind: Literal["scenario", "grid"]) -> None:
    """Adds `--list`; see `check_list`."""
    parser.add_argument("--list", action="store_true", help=f"list all {kind}s")


def check_list(parser: argparse.ArgumentParser, options: argparse.Namespace, *names: str) -> None:
    """Ends the command if something was given that has no effect with `--list`: these options, or what to run."""
    if options.list:
        refuse(parser, options, "with --list", *names, *SHARED)
        if given := [*([options.name] if options.name else []), *options.overrides]:
            parser.error(f"{given[0]}: has no effect with --list; leave it out")


SHARED = ("backend", "address", "out", "data_dir", "minutes")
"""The options of `add_shared_options` that only a run uses; see `resolve_shared`."""


def resolve_shared(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Sets `backend` and `out` where they were not given, and ends the command if `--address` has no effect."""
    if options.backend == "inline":
        refuse(parser, options, "with --backend inline", "address")
    options.backend, options.out = options.backend or "ray", options.out or "runs"


def add_shared_options(parser: argparse.ArgumentParser, kind: Literal["scenario", "grid"]) -> None:
    """Adds a scenario or grid (as `name`), its overrides, and the options for backend, cluster and output.

    Overrides may appear anywhere among the options, so parse with `parse_intermixed_args`, then `resolve_shared`.
    """
    run = {"scenario": "run", "grid": "grid"}[kind]
    uri = ", a path or a URI such as s3://bucket/runs" if kind == "scenario" else ""
    add_scenario(parser, kind)
    parser.add_argument(
        "--backend",
        choices=["ray", "inline"],
        help="ray (default), or inline: in this process, for debugging; results are the same",
    )
    parser.add_argument(
        "--address",
        help="address of a Ray cluster, or auto for the one that this machine belongs to (default: $RAY_ADDRESS, else "
        "start a cluster on this machine)",
    )
    parser.add_argument(
        "--out",
        type=folder_or_uri,
        metavar="DIR",
        help=f"where to create the folder of the {run}{uri} (default: runs)",
    )
    again = {"scenario": "resume it to continue", "grid": "the same command continues it"}[kind]
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help=f"interrupt the {run} after so many minutes, with a checkpoint, as SIGTERM would; {again}",
    )


def run_options(options: argparse.Namespace) -> RunOptions:
    """What the command says about how a run, a submission or the runs of a grid are started."""
    from rayfl.runs.options import RunOptions

    chosen = vars(options)
    centralise: Centralise = "keep_momentum" if chosen.get("keep_momentum") else chosen.get("centralised", False)
    names = ("backend", "address", "out", "data_dir", "resume", "more")
    arguments = {name: chosen[name] for name in names if chosen.get(name)}
    curves = not chosen.get("no_curves")
    return RunOptions(centralise=centralise, minutes=chosen.get("minutes"), curves=curves, **arguments)
