"""`rayfl run` and `rayfl resume`: list, show and run scenarios, and resume runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import (
    add_centralised,
    add_list,
    add_shared_options,
    check_centralised,
    check_list,
    command_parser,
    folder_or_uri,
    refuse,
    resolve_shared,
    run_options,
)

EXAMPLES = """\
examples:
  {prog} --list
  {prog} femnist_cyclic --quick
  {prog} femnist_cyclic seed=1 phases.0.rounds=20 data.source=files --data-dir ~/data
  {prog} my/own.toml --backend inline
  {prog} femnist_cyclic --show
  {prog} femnist_cyclic --centralised
  {prog} --resume runs/femnist_cyclic-20260101-120000
  {prog} --resume runs/femnist_cyclic-20260101-120000 --more 100      # rounds, beyond its end
  {prog} femnist_cyclic --out s3://bucket/runs
  {prog} femnist_cyclic --resume-or-start /shared/runs/one
  {prog} femnist_cyclic --resume-or-start /shared/runs/one --minutes 55    # before the limit of a job
  ray job submit --working-dir . -- python -m rayfl.scenario femnist_cyclic --out /shared/runs
"""

RESUMING = """\
examples:
  {prog} runs/femnist_cyclic-20260101-120000
  {prog} runs/femnist_cyclic-20260101-120000 --more 100      # rounds, beyond its end
  {prog} s3://bucket/runs/femnist_cyclic-20260101-120000 resources.hosts=8
"""


def main(arguments: Sequence[str] | None = None, prog: str = "python -m rayfl.scenario") -> int:
    """Runs the command; `exit_status` explains its exit status. Wrong options exit with 2.

    Args:
        arguments: The arguments of the command; by default those of the program.
        prog: The command as the user typed it.
    """
    of_command = parser(prog)
    options = of_command.parse_intermixed_args(arguments)
    if options.resume and options.name and "=" in options.name:
        options.overrides, options.name = [options.name, *options.overrides], None
    if not (options.list or options.name or options.resume):
        of_command.error("name a scenario, or use --list")
    if options.more is not None and not options.resume:
        of_command.error("--more: only works with --resume")
    if options.more is not None and (options.name or options.more < 1):
        of_command.error("--more: adds a number of rounds above 0 to the run's own scenario")
    if options.show and options.centralised:
        of_command.error("--show: loads no data, which --centralised requires to count passes; leave out one of them")
    if options.resume_or_start:
        refuse(of_command, options, "with --resume-or-start", "resume", "out")
    none = "show", "resume", "resume_or_start", "quick", "centralised", "keep_momentum", "no_curves"
    check_list(of_command, options, *none)
    if options.show:  # added to the command of a run, it checks that command, so options of the run may stay
        refuse(of_command, options, "with --show", "resume")
    if options.resume:
        refuse(of_command, options, "where a run continues in its own folder", "out")
    resolve_shared(of_command, options)
    check_centralised(of_command, options)
    return exit_status(lambda: _execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser; for `rayfl resume` the first argument is the run, instead of `--resume RUN`."""
    resumes = prog.endswith(" resume")
    again = "the folder or URI of a run to continue from its last checkpoint, by default with its own scenario"
    if resumes:
        parser = command_parser(prog, "Continue a run that was interrupted, killed or lost.", RESUMING)
        parser.add_argument("resume", type=folder_or_uri, metavar="run", help=again)
        parser.set_defaults(show=False, resume_or_start=None, list=False)
    else:
        parser = command_parser(prog, "Run a federated-learning scenario on Ray.", EXAMPLES)
        parser.add_argument("--resume", type=folder_or_uri, metavar="RUN", help=again)
        parser.add_argument(
            "--resume-or-start",
            type=folder_or_uri,
            metavar="RUN",
            help="the folder or URI of the run: continue there if it has begun, do nothing if it has finished, else "
            "begin; for Kubernetes and other schedulers that repeat a failed command",
        )
        add_list(parser, "scenario")
        parser.add_argument("--show", action="store_true", help="check the scenario and print it with every default")
    parser.add_argument(
        "--more",
        type=int,
        metavar="ROUNDS",
        help=f"{'' if resumes else 'with --resume: '}add this many rounds to the last phase of the run",
    )
    parser.add_argument("--no-curves", action="store_true", help="do not draw curves.png in the end")
    add_centralised(parser)
    add_shared_options(parser, "scenario")
    return parser


def _execute(options: argparse.Namespace) -> int:
    if options.list:
        from rayfl.cli.entries import scenario_entries
        from rayfl.cli.list import print_scenarios

        print_scenarios(scenario_entries())
    elif options.show:
        from rayfl.config.loader import load_scenario
        from rayfl.engine.plan.scenario_checks import check_scenario
        from rayfl.runs.resolution import resolve

        scenario = resolve(load_scenario(options.name, options.overrides, options.quick))
        check_scenario(scenario)
        print(scenario.to_toml(), end="")
    else:
        from rich.console import Console

        from rayfl.console import print_wrapped
        from rayfl.steps import starting

        console = Console()
        with starting(console, str(options.name or options.resume)):
            from rayfl.config.loader import load_scenario
            from rayfl.runs.again import resume_or_start
            from rayfl.runs.session import run_with

            chosen = run_options(options)
        if options.resume_or_start:
            load = partial(load_scenario, options.name, options.overrides, options.quick)
            again = resume_or_start(chosen, options.resume_or_start, partial(print_wrapped, console), load)
            if again is None:
                return 0
            chosen = again
        run_with(chosen, options.name, options.overrides, options.quick, console)
    return 0
