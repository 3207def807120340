"""What a checkout says without training: help, public names, and every shipped scenario, grid and component resolved.

Uses the command line and public names only, and is itself run by path, with the checkout on PYTHONPATH.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import runpy
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import rayfl
from pydantic import BaseModel
from rich.console import Console

NAMESPACES = ("rayfl", *(f"rayfl.{name}" for name in "algorithms callbacks data local models schedules tasks".split()))
PLAIN = Path(__file__).parents[1] / "scenes" / "plain.toml"
COMPONENTS = {
    "algorithm": "phases.0.algorithm='{}'",
    "augmentation": "data.augment=['{}']",
    "callback": "callbacks=['{}']",
    "data": "data.name='{}'",
    "metric": "evaluation.metrics=['{}']",
    "model": "model='{}'",
    "optimizer": "phases.0.local.optimizer='{}'",
    "partition": "data={{name='own:people',clients=3,partition='{}'}}",
    "sampler": "phases.0.cohort={{sampler='{}'}}",
    "server_optimizer": "phases.0.algorithm={{name='fedavg',server_optimizer='{}'}}",
    "task": "task='{}'",
    "transform": "phases.0.transforms=['{}']",
}
"""The override that chooses a component. An unknown name gives an error that lists the known ones."""


def said(module: str, *arguments: str) -> str:
    """What `python -m` prints, and its exit status if that is not 0."""
    out, status, before = io.StringIO(), 0, sys.argv
    sys.argv = [module, *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(out):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv = before
    return out.getvalue() + (f"(exit status {status})\n" if status else "")


def help_texts() -> Iterator[tuple[str, str]]:
    """Yields the help of rayfl, of its commands, and of theirs."""
    texts: dict[tuple[str, ...], str] = {}
    left: list[tuple[str, ...]] = [()]
    while left:
        command = left.pop()
        text = said("rayfl", *command, "--help")
        if command and texts[command[:-1]] == text:  # a choice of the first argument, and no command of its own
            continue
        texts[command] = text
        yield f"{'-'.join(('rayfl', *command))}.txt", text
        choices = [choice for found in re.findall(r"^  \{([\w,-]+)\}", text, re.M) for choice in found.split(",")]
        left += [(*command, name) for name in (choices if command else re.findall(r"^  ([a-z]+)  ", text, re.M))]
    yield "python-m-rayfl.scenario.txt", said("rayfl.scenario", "--help")
    yield "rayfl-list.txt", said("rayfl", "list")


def names() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the public names of every namespace, with signatures."""
    for namespace in NAMESPACES:
        module = import_module(namespace)
        yield f"{namespace}.json", {name: described(getattr(module, name)) for name in sorted(module.__all__)}


def described(value: Any) -> Any:
    """The signature of a function; of a class, also its public members, and its fields with defaults and bounds."""
    if not inspect.isclass(value):
        return signature(value) if callable(value) else plain(value)
    members = {}
    for name in dir(value):
        owner = next((base for base in value.__mro__ if name in vars(base)), object)
        if name.startswith("_") or not owner.__module__.startswith("rayfl"):
            continue
        member = inspect.getattr_static(value, name)
        kind = type(member).__name__
        wrapped = getattr(member, "__func__", None) or getattr(member, "fget", None) or getattr(member, "func", member)
        members[name] = f"{kind} {signature(wrapped) if callable(wrapped) else plain(wrapped)}"
    found = {"bases": plain([base.__name__ for base in value.__mro__]), "call": signature(value), "members": members}
    if issubclass(value, BaseModel):
        found["fields"] = {
            name: plain([field.annotation, field.get_default(call_default_factory=False), field.metadata])
            for name, field in value.model_fields.items()
        }
    return found


def signature(value: Any) -> str:
    try:
        return plain(inspect.signature(value))
    except (TypeError, ValueError):
        return "(no signature)"


def plain(value: Any) -> str:
    """A value as text, without addresses, and without the modules that names come from, which may move."""
    return re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\brayfl(\.\w+)*\.(?=\w)", "", str(value)))


def shown(scenario: str | Path, *overrides: str) -> Any:
    """The resolved scenario, or what is said instead."""
    text = said("rayfl", "run", str(scenario), "--show", *overrides)
    text = text.replace(str(PLAIN.parent), "SCENES").replace(str(checkout()), "CHECKOUT")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return text


def scenarios() -> Iterator[tuple[str, Any]]:
    """Yields every shipped scenario, in full and in its quick form."""
    for path in sorted((checkout() / "scenarios").rglob("[!_]*.toml")):
        if not path.name.endswith(".grid.toml"):
            yield f"{path.stem}.json", {"full": shown(path), "quick": shown(path, "--quick")}


def grids(resolve: bool) -> Iterator[tuple[str, Any]]:
    """Yields the cells of every shipped grid: the places of its runs, and a scenario for each row and column.

    The method `scenarios` of `GridResult.grid` is the only thing here that is not public. `rayfl.grid(table_only=True)`
    resolves all cells and runs none, but does not show them.
    """
    for path in sorted((checkout() / "scenarios").rglob("*.grid.toml")):
        found: dict[str, Any] = {}
        for quick in (False, True):
            with tempfile.TemporaryDirectory() as out:
                try:
                    if not quick:
                        grid = rayfl.grid(path, table_only=True, out=out, console=Console(quiet=True)).grid
                    cells = grid.scenarios((), quick)
                except rayfl.RayflError as error:
                    found[f"error, {quick=}"] = str(error).replace(str(checkout()), "CHECKOUT")
                    continue
            found[f"places, {quick=}"] = [str(place) for place in cells]
            distinct = {(place.row, place.column): scenario for place, scenario in reversed(cells.items())}
            for (row, column), scenario in sorted(distinct.items()):
                text = scenario.to_toml()
                key = f"{row} / {column}{' (quick)' if quick else ''}"
                found[key] = text.replace(str(checkout()), "CHECKOUT")
                if resolve:
                    Path("cell.toml").write_text(text)
                    found[f"{key} resolved"] = shown(Path("cell.toml"))
        yield f"{path.name.removesuffix('.grid.toml')}.json", found


def components() -> Iterator[tuple[str, Any]]:
    """Yields the defaults of every registered component, as a plain scenario shows them."""
    for kind, override in COMPONENTS.items():
        text = str(shown(PLAIN, override.format("0")))
        known = re.search(r"known: (\w+(?:, \w+)*)", text)
        found = {name: shown(PLAIN, override.format(name)) for name in known[1].split(", ")} if known else {"": text}
        yield f"{kind}.json", found


def checkout() -> Path:
    """The folder that rayfl is imported from."""
    return Path(os.environ["CHECKOUT"])


def main() -> None:
    assert Path(rayfl.__file__).is_relative_to(checkout()), rayfl.__file__
    out, resolve = Path(sys.argv[1]), "--resolve-cells" in sys.argv
    kinds = {
        "help": help_texts(),
        "names": names(),
        "scenarios": scenarios(),
        "grids": grids(resolve),
        "components": components(),
    }
    for kind, files in kinds.items():
        (out / kind).mkdir(parents=True)
        for name, content in files:
            text = content if isinstance(content, str) else json.dumps(content, indent=1)
            (out / kind / name).write_text(text)


if __name__ == "__main__":
    main()
