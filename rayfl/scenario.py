"""python -m rayfl.scenario: list, show and run scenarios."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rayfl.algorithms.building import with_algorithm_defaults
from rayfl.config.finding import find_scenarios
from rayfl.config.loading import load_scenario, scenario_title
from rayfl.errors import RayflError

EXAMPLES = """\
examples:
  python -m rayfl.scenario --list
  python -m rayfl.scenario femnist_cyclic --quick
  python -m rayfl.scenario femnist_cyclic seed=1 phases.0.rounds=20 data.source=files --data-dir ~/data
  python -m rayfl.scenario my/own.toml --backend inline
  python -m rayfl.scenario femnist_cyclic --show
  ray job submit --working-dir . -- python -m rayfl.scenario femnist_cyclic --out /shared/runs
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 with a message where something failed; 2 for wrong options; 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m rayfl.scenario",
        description="Run a federated-learning scenario on Ray.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", nargs="?", help="a scenario's name, or a path to a .toml file")
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="replace a value of the scenario")
    parser.add_argument("--list", action="store_true", help="list the scenarios that are found, with their titles")
    parser.add_argument("--show", action="store_true", help="print the resolved scenario instead of running it")
    parser.add_argument("--quick", action="store_true", help="apply the scenario's [quick] table: a first look")
    parser.add_argument("--backend", choices=["ray", "inline"], default="ray", help="default: ray")
    parser.add_argument(
        "--address", help="a Ray cluster's address, or 'auto' (default: RAY_ADDRESS, else one started here)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the run's folder goes (default: runs)")
    parser.add_argument("--data-dir", type=Path, help="real data (default: RAYFL_DATA, else ~/.cache/rayfl/data)")
    options = parser.parse_intermixed_args(arguments)
    console = Console()
    try:
        if options.list:
            _print_list(console)
        elif not options.scenario:
            parser.error("name a scenario, or use --list")
        elif options.show:
            shown = with_algorithm_defaults(load_scenario(options.scenario, options.overrides, options.quick))
            print(shown.to_toml(), end="")
        else:
            from rayfl.simulation import run  # PyTorch is loaded only to run

            run(
                options.scenario,
                overrides=options.overrides,
                quick=options.quick,
                backend=options.backend,
                address=options.address,
                out=options.out,
                data_dir=options.data_dir,
                console=console,
            )
    except RayflError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _print_list(console: Console) -> None:
    table = Table("scenario", "title", box=None)
    for name, path in sorted(find_scenarios().items()):
        table.add_row(Text(name), Text(scenario_title(path)))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
