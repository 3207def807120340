"""The command `rayfl analyse`: runs analyses of finished runs that show why a start helps."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import add_data_dir, command_parser, folder_or_uri, refuse
from rayfl.errors import ScenarioError

EXAMPLES = """\
examples:
  {prog} gains runs/mine                             # again to continue after an interruption
  {prog} variance runs/random runs/cyclic weights=100 rounds=1,10,50 samples=1000
  {prog} landscape runs/mine models=initial,final points=11 --backend inline
  {prog} curve runs/mine target=0.5

docs/how-to/analyse.md explains the analyses and their options
"""

AT_URI = "and every node reads the runs repeatedly: copy it to a folder that all nodes can access"


def main(arguments: Sequence[str] | None = None, prog: str = "rayfl analyse") -> int:
    """Runs the command; `exit_status` explains its exit status. Wrong options exit with 2."""
    of_command = parser(prog)
    options = of_command.parse_intermixed_args(arguments)
    if options.hosts is not None and options.hosts < 1:
        of_command.error("--hosts: must be at least 1")
    if options.backend == "inline":
        refuse(of_command, options, "with --backend inline", "hosts", "address")
    return exit_status(lambda: _execute(options), "interrupted: run the same command again to continue")


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(
        prog, "Analyse finished runs: write a Parquet file and a picture to the folder of the first run.", EXAMPLES
    )
    parser.add_argument(
        "name", help="bounds, convex, curve, gains, heterogeneity, landscape, ntk, probe, variance, or your own"
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN | key=value", help="folders of runs, and options of the analysis"
    )
    parser.add_argument(
        "--backend",
        choices=["ray", "inline"],
        default="ray",
        help="ray (default), on a cluster; or inline, in this process; results are the same",
    )
    parser.add_argument("--address", help="address of a Ray cluster, as for rayfl run")
    parser.add_argument(
        "--hosts",
        type=int,
        metavar="N",
        help="number of worker processes (default: as many as the cluster has room for)",
    )
    parser.add_argument(
        "--out", type=folder_or_uri, metavar="DIR", help="where to create analyses/ (default: folder of the first run)"
    )
    add_data_dir(parser)
    return parser


def _execute(options: argparse.Namespace) -> int:
    from rayfl.remote_folder import local
    from rayfl.studies.analysis.execution import analyse

    for text in options.runs:
        if "://" in text.partition("=")[0]:
            local(text, "RUN", AT_URI)
    option_texts = [text for text in options.runs if "=" in text and not Path(text).exists()]
    keys = dict(map(_option, option_texts))
    for key in keys.keys() & {"backend", "address", "hosts", "out", "data_dir"}:
        raise ScenarioError(f"{key}: unknown key of an analysis; the command has --{key.replace('_', '-')}")
    for key in keys.keys() & {"console", "quiet"}:
        raise ScenarioError(f"{key}: unknown key of an analysis (got {keys[key]!r})")
    analyse(
        options.name,
        [text for text in options.runs if text not in option_texts],
        backend=options.backend,
        address=options.address,
        hosts=options.hosts,
        out=local(options.out, "--out", AT_URI) if options.out else None,
        data_dir=options.data_dir,
        console=Console(),
        **keys,
    )
    return 0


def _option(text: str) -> tuple[str, Any]:
    """Parses `rounds=1,10` into a key and a value: as TOML, else as a list of TOML values, else as text or texts."""
    key, _, raw = (part.strip() for part in text.partition("="))
    for candidate in (raw, f"[{raw}]"):
        try:
            return key, tomllib.loads(f"value = {candidate}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return key, [_option(f"={part}")[1] for part in raw.split(",")] if "," in raw else raw
