"""`rayfl data prepare` and `rayfl data verify`: write data for runs that read it from disk, and check it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import tomli_w

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import add_data_dir, command_parser

if TYPE_CHECKING:
    from rayfl.config.scenario import Scenario

EXAMPLES = """\
examples:
  {prog} femnist_cyclic prepared/femnist
  {prog} parquet_folder prepared/mine data.options.path=mine data.options.inputs=x data.options.label=y \\
      data.options.owner=site
  {prog} my.sources:readings prepared/readings data.clients=1000 data.partition.name=dirichlet data.partition.beta=0.5
  {prog} image_folder /shared/scans data.options.path=/shared/images data.options.size=224 --address auto

a preparation that was interrupted goes on when the same command runs again
"""

VERIFY_EXAMPLES = """\
example:
  {prog} prepared/femnist
"""


def prepare_main(arguments: Sequence[str], prog: str) -> int:
    """Runs `rayfl data prepare`; `exit_status` explains its exit status. Wrong options exit with 2."""
    options = prepare_parser(prog).parse_intermixed_args(arguments)
    return exit_status(lambda: _prepare(options), "interrupted: run the same command again to continue")


def prepare_parser(prog: str) -> argparse.ArgumentParser:
    """The parser of `rayfl data prepare`."""
    parser = command_parser(
        prog,
        "Partition data and write it to a folder, ordered by client, for runs with data.name = 'prepared'.",
        EXAMPLES,
    )
    parser.add_argument(
        "source", metavar="SOURCE", help="a data set, package.module:function, or a scenario whose [data] is prepared"
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write, on a disk that all nodes share")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="data.key=value", help="set a value of [data]; may be repeated"
    )
    add_data_dir(parser)
    parser.add_argument(
        "--address",
        help="address of a Ray cluster whose nodes write the fragments, or auto for the one that this machine belongs "
        "to (default: this process writes them)",
    )
    return parser


def _prepare(options: argparse.Namespace) -> int:
    from rayfl.data.files import cache_folder, data_folder
    from rayfl.data.prepared.unwritten import WriteFragments, one_by_one
    from rayfl.data.prepared.writer import prepare
    from rayfl.errors import ResourceError

    scenario, write = _scenario(options.source, options.overrides), cast("WriteFragments", one_by_one)
    data_dir = data_folder(options.data_dir).absolute()
    if options.address:
        from rayfl.backends.ray.fragments import OnCluster
        from rayfl.runs.environment import code_digests

        write = OnCluster(scenario, code_digests([scenario]), data_dir, options.address)
    try:
        manifest = prepare(scenario.data, scenario.data_seed, data_dir, cache_folder(), options.folder, write=write)
    except OSError as error:
        raise ResourceError(
            f"{options.folder}: cannot be written to ({error.strerror or error}); name a folder that can"
        ) from error
    sizes = ", ".join(f"{one.rows:,} in {name}" for name, one in manifest.sets.items())
    print(f"prepared {manifest.name} in {options.folder}: {manifest.clients:,} clients, samples: {sizes}")
    path = tomli_w.dumps({"path": str(options.folder.absolute())}).strip()
    print(f'write: data = {{ name = "prepared", options = {{ {path} }} }}')
    return 0


def _scenario(source: str, overrides: Sequence[str]) -> Scenario:
    from rayfl.config.loader import load_scenario
    from rayfl.data import data_sources
    from rayfl.runs.resolution import resolve

    if source not in data_sources and ":" not in source:
        return resolve(load_scenario(source, overrides))
    phase = {"name": "any", "rounds": 1, "cohort": 1}
    return resolve(load_scenario({"data": {"name": source}, "model": "mlp", "phases": [phase]}, overrides))


def verify_main(arguments: Sequence[str], prog: str) -> int:
    """Runs `rayfl data verify`; `exit_status` explains its exit status. Wrong options exit with 2."""
    options = verify_parser(prog).parse_args(arguments)
    return exit_status(lambda: _verify(options))


def verify_parser(prog: str) -> argparse.ArgumentParser:
    """The parser of `rayfl data verify`."""
    parser = command_parser(prog, "Compare all files of prepared data with their digests.", VERIFY_EXAMPLES)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what `rayfl data prepare` wrote")
    return parser


def _verify(options: argparse.Namespace) -> int:
    from rayfl.data.prepared.reader import verify

    print(verify(options.folder))
    return 0
