"""`python -m tools.structure`: how large the package is, what its rooms import, and how far one round travels."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any, ClassVar, NamedTuple

from rich.console import Console
from rich.table import Table

import rayfl
from rayfl.callbacks import Callback, RunSoFar

PACKAGE = Path(rayfl.__file__).parent
NAMED = re.compile(r"rayfl(\.\w+)+(:\w+)?")
"""A text that is nothing but the name of a module or of something in it, as registries hold them."""


@dataclass(frozen=True)
class Module:
    """A module of the package.

    Attributes:
        name: Its dotted name.
        source: Its text.
        is_package: Whether it is the `__init__.py` of a folder.
    """

    name: str
    source: str
    is_package: bool

    @property
    def lines(self) -> int:
        """Number of lines."""
        return self.source.count("\n")


class Round(NamedTuple):
    """How many files, functions and classes of the package one round passes through."""

    files: int
    functions: int
    classes: int


def modules(package: Path = PACKAGE) -> dict[str, Module]:
    """All modules of a package by name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, path.read_text(), is_package)
    return found


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Yields (line, dotted name) of every import.

    Imports count at the top and in functions, under TYPE_CHECKING, by `import_module`, and as a text that names a
    module of rayfl, such as "rayfl.models.cnn:LeNet5" in a registry.
    """
    for node in ast.walk(ast.parse(module.source)):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=origin, names=names, level=level):
                if level:
                    parts = module.name.split(".")
                    parents = parts[: len(parts) - level + module.is_package]
                    origin = ".".join([*parents, *([origin] if origin else [])])
                for alias in names:
                    yield node.lineno, f"{origin}.{alias.name}"
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name
            case ast.Constant(value=str(text)) if NAMED.fullmatch(text):
                yield node.lineno, text.replace(":", ".")


def edges(found: Mapping[str, Module]) -> dict[str, set[str]]:
    """The modules that each module imports, other than itself and the package's own `__init__.py`."""

    def resolved(name: str) -> str:
        while name not in found:
            name = name.rpartition(".")[0]
        return name

    return {
        name: {resolved(to) for _, to in imported(module) if to.split(".")[0] == "rayfl"} - {name, "rayfl"}
        for name, module in found.items()
    }


def room_of(module: str) -> str:
    """The room that a module lies in: the folder in the package, or the module itself at the top."""
    return ".".join(module.split(".")[:2])


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of two or more nodes that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for after in graph.get(node, ()):
            if after not in number:
                visit(after)
                low[node] = min(low[node], low[after])
            elif after in stack:
                low[node] = min(low[node], number[after])
        if low[node] == number[node]:
            start = stack.index(node)
            group = stack[start:]
            del stack[start:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in number:
            visit(node)
    return found


def room_cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """As `cycles`, between rooms."""
    rooms: dict[str, set[str]] = {}
    for name, others in graph.items():
        rooms.setdefault(room_of(name), set()).update(room_of(other) for other in others)
    return cycles({room: others - {room} for room, others in rooms.items()})


def import_lines(module: Module) -> int:
    """Number of lines of import statements."""
    statements = (node for node in ast.walk(ast.parse(module.source)) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)


class _SecondRound(Callback):
    """Records which code of the package runs between the ends of the first and the second round."""

    _ran: ClassVar[set[CodeType]] = set()

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == 1:
            _SecondRound._ran = set()
            sys.setprofile(self._saw)
        else:
            sys.setprofile(None)

    def _saw(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            _SecondRound._ran.add(frame.f_code)


def second_round() -> Round:
    """Runs three rounds of FedAvg with two clients in this process, and follows the second, which is not evaluated."""
    quiet = Console(quiet=True)
    overrides = {
        "data.source": "generated",
        "data.clients": 2,
        "phases.federated.cohort": 2,
        "phases.federated.rounds": 3,
        "phases.federated.local.epochs": 1,
        "evaluation.every": 3,
    }
    with tempfile.TemporaryDirectory() as out:
        rayfl.run(
            "femnist_fedavg",
            overrides=overrides,
            backend="inline",
            out=out,
            callbacks=[_SecondRound(name="second_round")],
            console=quiet,
        )
    names = {(code.co_filename, code.co_qualname.split(".<locals>")[0]) for code in _SecondRound._ran}
    classes = {(file, name.rpartition(".")[0]) for file, name in names if "." in name}
    return Round(len({file for file, _ in names}), len(names), len(classes))


def main() -> None:
    """Prints the counts, of the whole and by room."""
    found = modules()
    graph, total = edges(found), sum(module.lines for module in found.values())
    rooms: dict[str, list[Module]] = {}
    for module in found.values():
        rooms.setdefault(room_of(module.name).removeprefix("rayfl."), []).append(module)
    table = Table("room", *(("files", "lines", "longest")))
    alone = [module for inner in rooms.values() if len(inner) == 1 for module in inner]
    for room, inner in sorted(rooms.items()):
        if len(inner) > 1:
            table.add_row(
                room, str(len(inner)), str(sum(one.lines for one in inner)), str(max(one.lines for one in inner))
            )
    table.add_row(
        "top",
        str(len(alone)),
        str(sum(one.lines for one in alone)),
        str(max(one.lines for one in alone)),
        end_section=True,
    )
    table.add_row("all", str(len(found)), str(total), str(max(one.lines for one in found.values())))
    console = Console()
    console.print(table)
    share = sum(map(import_lines, found.values())) / total
    console.print(f"median {median(module.lines for module in found.values()):.0f} lines a file, imports {share:.1%}")
    console.print(f"cycles between rooms: {room_cycles(graph) or 'none'}")
    files, functions, classes = second_round()
    console.print(f"one FedAvg round: {files} files, {functions} functions, {classes} classes")


if __name__ == "__main__":
    main()
