"""What a checkout says without training: help, public names, and every shipped scenario, grid and component resolved.

Uses the command line and public names alone; started by path, with the checkout on PYTHONPATH.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import runpy
import sys
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel
from rich.console import Console
from scenes import SCENES  # type: ignore[import-not-found]

import rayfl

CHECKOUT = Path(os.environ["CHECKOUT"])
NAMESPACES = "rayfl .algorithms .callbacks .data .local .models .schedules .tasks".split()  # noqa: SIM905
COMPONENTS = {
    "aggregation": "phases.0.algorithm={{name='fedavg',weighting='uniform',aggregation='{}'}}",
    "algorithm": "phases.0.algorithm='{}'",
    "augmentation": "data.augment=['{}']",
    "callback": "callbacks=['{}']",
    "collation": "data.collate='{}'",
    "data": "data.name='{}'",
    "labeling": "data={{name='scenes:people',clients=3,partition='iid',labels_by='{}'}}",
    "metric": "evaluation.metrics=['{}']",
    "model": "model='{}'",
    "optimizer": "phases.0.local.optimizer='{}'",
    "partition": "data={{name='scenes:people',clients=3,partition='{}'}}",
    "penalty": "phases.0.algorithm={{name='fedavg',penalties=['{}']}}",
    "sample_weights": "phases.0.local.sample_weights='{}'",
    "sampler": "phases.0.cohort={{sampler='{}'}}",
    "schedule": "phases.0.schedule='{}'",
    "server_optimizer": "phases.0.algorithm={{name='fedavg',server_optimizer='{}'}}",
    "task": "task='{}'",
    "transform": "phases.0.transforms=['{}']",
}
"""The override that chooses a component. An unknown name gives an error that lists the known ones."""
TABLE = ("data.options.path='table'", "data.options.inputs='x'", "data.options.label='y'")
AUGMENTED, NETWORK, ALPHA = ("data.augment=['flip']",), ("model.network='scenes:Dense'",), ("data.partition.alpha=0.5",)
CLOCK = ("participation.steps_per_s=10", "phases.0.concurrency=4")
REQUIRED = {
    "algorithm fedmeta": ("phases.0.local={}",),
    "algorithm qfedsgd": ("phases.0.local={}",),
    "data arrow_file": TABLE,
    "data image_folder": ("data.options.path='images'", "data.options.size=8"),
    "data imagenet": ("data.options.size=8",),
    "data npz_file": ("data.options.path='arrays.npz'",),
    "data parquet_folder": TABLE,
    "data prepared": ("data.options.path='prepared'",),
    "data text_files": ("data.options.path='text.txt'",),
    "data torchvision": ("data.options.dataset='CIFAR10'",),
    "labeling column": ("data.labels_by.index=0",),
    "metric top_k": ("evaluation.metrics.0.k=2",),
    "model momentum_contrast": NETWORK,
    "model orchestra": NETWORK,
    "model projected": NETWORK,
    "model siamese": NETWORK,
    "partition dirichlet": ("data.partition.beta=0.5",),
    "partition dirichlet_balanced": ALPHA,
    "partition dirichlet_per_client": ALPHA,
    "partition dirichlet_per_client_unequal": ALPHA,
    "partition dirichlet_plain": ALPHA,
    "sampler power_of_choice": ("phases.0.cohort.clients=2", "phases.0.cohort.candidates=3"),
    "schedule asynchronous": CLOCK,
    "schedule buffered": (*CLOCK, "phases.0.buffer=2"),
    "schedule central": ("phases.0={schedule='central',rounds=1}",),
    "schedule local": ("phases.0={schedule='local',rounds=1,local={epochs=1}}",),
    "task moco": AUGMENTED,
    "task orchestra": AUGMENTED,
    "task simsiam": AUGMENTED,
}
"""More overrides, for a component that needs them."""
REFUSED = {
    "callback live_table": "needs a notebook",
    "callback ray_tune": "needs a trial of Ray Tune",
    "optimizer lbfgs": "cannot train clients: it evaluates the loss several times a step",
    "optimizer sparseadam": "cannot train clients: their gradients are dense",
}
"""Why no scenario shows a component here."""


def said(module: str, *arguments: str) -> str:
    """What `python -m` prints, and its exit status if that is not 0."""
    out, status, before = io.StringIO(), "", sys.argv
    sys.argv = [module, *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(out):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = f"(exit status {end.code})\n" if end.code else ""
    finally:
        sys.argv = before
    return out.getvalue().replace(str(CHECKOUT), "CHECKOUT").replace(str(Path.cwd()), "HERE") + status


def shown(scenario: str, *overrides: str) -> Any:
    """The resolved scenario, or what is said instead."""
    text = said("rayfl", "run", scenario, "--show", *overrides)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return text


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
        yield " ".join(("rayfl", *command)), text
        choices = [choice for found in re.findall(r"^  \{([\w,-]+)\}", text, re.M) for choice in found.split(",")]
        left += [(*command, name) for name in (choices if command else re.findall(r"^  ([a-z]+)  ", text, re.M))]
    yield "python -m rayfl.scenario", said("rayfl.scenario", "--help")
    yield "rayfl list", said("rayfl", "list")


def names() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the public names of every namespace, with signatures."""
    for namespace in NAMESPACES:
        module = import_module(namespace, "rayfl")
        yield module.__name__, {name: described(getattr(module, name)) for name in sorted(module.__all__)}


def described(value: Any) -> Any:
    """The signature of a function; of a class, also its public members, and its fields with defaults and bounds."""
    if not inspect.isclass(value):
        return signature(value)
    members = {}
    for name in dir(value):
        owner = next((base for base in value.__mro__ if name in vars(base)), object)
        if not name.startswith("_") and owner.__module__.startswith("rayfl"):
            member = inspect.getattr_static(value, name)
            inner = [getattr(member, wrapped, None) for wrapped in ("__func__", "fget", "func")]
            members[name] = f"{type(member).__name__} {signature(next(filter(None, inner), member))}"
    found = {"bases": [base.__name__ for base in value.__mro__], "call": signature(value), "members": members}
    if issubclass(value, BaseModel):
        found["fields"] = {
            name: plain([field.annotation, field.default, field.default_factory, field.metadata])
            for name, field in value.model_fields.items()
        }
    return found


def signature(value: Any) -> str:
    """The signature of what can be called, and the text of everything else."""
    try:
        return plain(inspect.signature(value))
    except (TypeError, ValueError):
        return plain(value)


def plain(value: Any) -> str:
    """A value as text, without addresses, and without the modules that names come from, which may move."""
    return re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\brayfl(\.\w+)*\.(?=\w)", "", str(value)))


def scenarios() -> Iterator[tuple[str, Any]]:
    """Yields every shipped scenario, in full and in its quick form."""
    for path in sorted((CHECKOUT / "scenarios").rglob("[!_]*.toml")):
        if not path.name.endswith(".grid.toml"):
            yield path.stem, {"full": shown(str(path)), "quick": shown(str(path), "--quick")}


def grids() -> Iterator[tuple[str, Any]]:
    """Yields the cells of every shipped grid: the places of its runs, and a scenario for each row and column.

    `rayfl.grid(table_only=True)` resolves all cells and runs none, but does not show them: the method `scenarios` of
    `GridResult.grid` does, and is the only thing in these probes that is not public.
    """
    for path in sorted((CHECKOUT / "scenarios").rglob("*.grid.toml")):
        found: dict[str, Any] = {}
        grid = rayfl.grid(path, table_only=True, out="grids", console=Console(quiet=True)).grid
        for form in ("full", "quick"):
            try:
                cells = grid.scenarios((), form == "quick")
            except rayfl.RayflError as error:
                found[form] = str(error).replace(str(CHECKOUT), "CHECKOUT")
                continue
            found[f"places, {form}"] = [str(place) for place in cells]
            for place, scenario in cells.items():
                key = f"{place.row} / {place.column}, {form}"
                if key not in found:
                    found[key] = scenario.to_toml().replace(str(CHECKOUT), "CHECKOUT")
                    if "--resolve-cells" in sys.argv:
                        Path("cell.toml").write_text(scenario.to_toml())
                        found[f"{key}, resolved"] = shown("cell.toml")
        yield path.name.removesuffix(".grid.toml"), found


def components() -> Iterator[tuple[str, Any]]:
    """Yields the defaults of every registered component, as a plain scenario shows them.

    No command shows those of analyses; an unknown option gives an error that lists the known ones.
    """

    def known(text: str) -> list[str]:
        found = re.search(r"(?:known: |must be )(.+?)(?: \(|, or 'package)", text)
        return re.findall(r"\b(?!or\b)\w+", found[1]) if found else []

    def of(component: str, override: str) -> Any:
        found = shown("plain.toml", override, *REQUIRED.get(component, ()))
        # see FAILED in tools/same/compare.py
        return f"failed {found}" if isinstance(found, str) and component not in REFUSED else found

    Path("plain.toml").write_text(tomli_w.dumps(SCENES["plain"]))
    for kind, override in COMPONENTS.items():
        text = str(shown("plain.toml", override.format("0")))
        yield kind, {name: of(f"{kind} {name}", override.format(name)) for name in known(text)} or f"failed {text}"
    text = said("rayfl", "analyse", "0", "0=0")
    yield "analysis", {name: said("rayfl", "analyse", name, "0=0") for name in known(text)} or f"failed {text}"


def main() -> None:
    assert Path(rayfl.__file__).is_relative_to(CHECKOUT), rayfl.__file__
    warnings.simplefilter("ignore")  # runpy's, that a module was imported before
    kinds = {"help": help_texts, "names": names, "scenarios": scenarios, "grids": grids, "components": components}
    for kind, files in kinds.items():
        folder = Path(sys.argv[-1]) / kind
        folder.mkdir(parents=True)
        for name, content in files():
            (folder / f"{name}.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
