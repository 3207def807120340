"""`rayfl new`: writes a commented scenario, and a file with your own algorithm."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import shlex
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from rich.console import Console

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import command_parser
from rayfl.errors import ResourceError, ScenarioError

EXAMPLES = """\
examples:
  {prog} my_method                             # my_method.toml and my_method.py
  {prog} my_method --data cifar10 --folder experiments
  {prog} baseline --algorithm fedprox          # a registered algorithm: baseline.toml only
"""


class _Data(NamedTuple):
    model: str
    clients: int
    partition: str
    quick_steps: int


_SPLIT = 'partition = { name = "dirichlet", beta = 0.5 }    # label skew; a smaller beta makes it stronger'
DATA = {
    "femnist": _Data("lenet5", 40, '# partition = "iid"              # by default one writer is one client', 50),
    "fashion_mnist": _Data("lenet5", 40, _SPLIT, 50),
    "cifar10": _Data("resnet8", 40, _SPLIT, 25),
    "cifar100": _Data("resnet8", 40, _SPLIT, 25),
}
"""Settings of the starter scenario for each data set. With `quick_steps`, its quick form takes about a minute."""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns."""
    options = parser(prog).parse_args(arguments)
    return exit_status(lambda: _execute(options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "Write a commented starter scenario and the file of an algorithm.", EXAMPLES)
    parser.add_argument("name", help="name of the scenario and the algorithm: letters, digits and underscores")
    parser.add_argument(
        "--algorithm", metavar="NAME", help="a registered algorithm (default: write your own to NAME.py)"
    )
    parser.add_argument("--data", choices=DATA, default="femnist", help="the data set (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="where to write the files (default: the current folder)"
    )
    return parser


def _execute(options: argparse.Namespace) -> int:
    files = starter(options.name, options.data, options.algorithm)
    written = {options.folder / name: text for name, text in files.items()}
    if taken := [path for path in written if path.exists()]:
        raise ResourceError(f"'{taken[0]}' already exists; choose another name or --folder")
    if len(files) > 1 and importlib.util.find_spec(options.name) is not None:
        raise ScenarioError(f"name: Python already has a module '{options.name}'; choose another name")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for path, text in written.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ResourceError(f"--folder: cannot write to '{options.folder}': {error.strerror}") from None
    scenario = shlex.quote(str(next(iter(written))))
    console = Console(highlight=False, soft_wrap=True)
    console.print(*(f"wrote {path}" for path in written), sep="\n", markup=False)
    console.print(
        "next:",
        f"  rayfl run {scenario} --quick      # a first look in a minute",
        f"  rayfl run {scenario} --show       # every key with its value",
        f"  rayfl data {scenario}             # the split of the data among the clients",
        f"  rayfl run {scenario}",
        sep="\n",
        markup=False,
    )
    return 0


def starter(name: str, data: str = "femnist", algorithm: str | None = None) -> dict[str, str]:
    """The text of the starter files, by file name; the scenario comes first.

    Args:
        name: Name of the scenario, and of the module of the algorithm.
        data: A key of `DATA`.
        algorithm: A registered algorithm; None to write your own as the second file.

    Raises:
        ScenarioError: The name is not valid for a module, or the algorithm is not registered.
    """
    from rayfl.algorithms import algorithms
    from rayfl.config.loader import load_scenario
    from rayfl.config.registry import nearest

    if name in sys.stdlib_module_names:
        raise ScenarioError(f"name: Python already has a module '{name}'; choose another name")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ScenarioError(f"name: '{name}' is not a valid name for your module; use letters, digits and underscores")
    if algorithm is not None and algorithm not in algorithms:
        raise ScenarioError(f"--algorithm: unknown algorithm '{algorithm}'; {nearest(algorithm, algorithms)}")
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Mine"
    chosen = f'"{algorithm}"' if algorithm else f'{{ name = "{name}:{class_name}", server_lr = 0.8 }}    # {name}.py'
    spaced = name.replace("_", " ").strip()
    words = {
        "name": name,
        "title": spaced[:1].upper() + spaced[1:] or name,
        "class_name": class_name,
        "data": data,
        "algorithm": f"algorithm = {chosen}",
        **DATA[data]._asdict(),
    }
    files = {f"{name}.toml": _filled("scenario.toml", words)}
    if algorithm is None:
        files[f"{name}.py"] = _filled("algorithm.py", words)
    tables = tomllib.loads(files[f"{name}.toml"])
    for quick in (False, True):
        load_scenario(tables, quick=quick)
    return files


def _filled(template: str, words: dict[str, str]) -> str:
    text = (Path(__file__).parent / "starter" / f"{template}.template").read_text(encoding="utf-8")
    return Template(text).substitute(words)
