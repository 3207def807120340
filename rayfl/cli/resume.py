"""`rayfl resume`: continues a run from its last checkpoint."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence

from rayfl.cli import run


def parser(prog: str) -> ArgumentParser:
    """The command's parser: that of `rayfl run`, with the run as its first argument instead of `--resume RUN`."""
    return run.parser(prog, resumes=True)


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns. Wrong options exit with 2."""
    return run.main(arguments, prog, resumes=True)
