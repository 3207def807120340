"""Who may import whom: the rooms of rayfl, and the registered names that lead into them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rayfl
from rayfl.algorithms import algorithms
from rayfl.algorithms.sampler import samplers
from rayfl.callbacks import callbacks
from rayfl.data import augmentations, collations, data_sources, labelings, partitioners
from rayfl.models import models
from rayfl.registry import Registry
from rayfl.tasks import tasks
from rayfl.tasks.metrics import metrics

PACKAGE = Path(rayfl.__file__).parent
FOUNDATIONS = (
    "rayfl.durable",
    "rayfl.errors",
    "rayfl.inside",
    "rayfl.lazy_names",
    "rayfl.passwords",
    "rayfl.reading",
    "rayfl.registry",
    "rayfl.streams",
    "rayfl.synonyms",
    "rayfl.user_code",
    "rayfl.wording",
)
ABOVE = (
    "rayfl.analysis",
    "rayfl.centralised",
    "rayfl.cluster",
    "rayfl.command_line",
    "rayfl.data_report",
    "rayfl.figures",
    "rayfl.fingerprint",
    "rayfl.grid",
    "rayfl.lifecycle",
    "rayfl.preparation",
    "rayfl.resolution",
    "rayfl.result",
    "rayfl.scenario",
    "rayfl.schedules",
    "rayfl.session",
    "rayfl.simulation",
    "rayfl.start",
)
STOREYS = (
    ("rayfl.config",),
    ("rayfl.component",),
    ("rayfl.data", "rayfl.models"),
    ("rayfl.local",),
    ("rayfl.algorithms", "rayfl.tasks"),
    ("rayfl.planning",),
    ("rayfl.privacy",),
    ("rayfl.engine",),
    ("rayfl.report",),
    ("rayfl.callbacks",),
    ABOVE,
)
"""From the ground up: a room knows nothing of those above it, nor of its neighbours on the same storey."""

FORBIDDEN = {
    room: (
        *(other for other in storey if other != room),
        *(above for higher in STOREYS[level + 1 :] for above in higher),
    )
    for level, storey in enumerate(STOREYS[:-1])
    for room in storey
}
MAY_IMPORT_RAY = ("rayfl.cluster",)
MAY_IMPORT_CLUSTER = (
    "rayfl.__main__",
    "rayfl.analysis",
    "rayfl.cluster",
    "rayfl.doctor",
    "rayfl.grid",
    "rayfl.lifecycle",
    "rayfl.scenario",
    "rayfl.session",
)


def inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


def imported(source: str, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import: at the top, in functions, under TYPE_CHECKING, and by import_module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=origin, names=names, level=level):
                if level:
                    parts = module.split(".")
                    parents = parts[: len(parts) - level + is_package]
                    origin = ".".join([*parents, *([origin] if origin else [])])
                for alias in names:
                    yield node.lineno, f"{origin}.{alias.name}"
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """One sentence for every import of `module` that breaks the dependency rule."""
    found = []
    for line, name in imported(source, module, is_package):
        room = next((room for room in FORBIDDEN if inside(module, (room,))), None)
        if room and inside(name, FORBIDDEN[room]):
            found.append(f"{module}:{line} imports {name}: {room} knows nothing of it")
        if inside(name, ("ray",)) and not inside(module, MAY_IMPORT_RAY):
            found.append(f"{module}:{line} imports {name}: only rayfl.cluster imports ray")
        # rayfl itself only names what it imports on first use
        if inside(name, ("rayfl.cluster",)) and not inside(module, MAY_IMPORT_CLUSTER) and module != "rayfl":
            found.append(f"{module}:{line} imports {name}: only who starts a run may")
        if module in FOUNDATIONS and inside(name, ("rayfl",)) and not inside(name, FOUNDATIONS):
            found.append(f"{module}:{line} imports {name}: a foundation rests on foundations only")
    return list(dict.fromkeys(found))


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_every_room_imports_only_what_it_may() -> None:
    checked, found = [], []
    for module, path in modules():
        checked.append(module)
        found += violations(path.read_text(), module, path.name == "__init__.py")
    assert {*FOUNDATIONS, *FORBIDDEN, "rayfl.cluster"} <= set(checked)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("rayfl.algorithms.fedavg", "from rayfl.engine.sums import exact", "rayfl.algorithms knows nothing"),
        ("rayfl.algorithms.fedavg", "from ..engine import sums", "rayfl.algorithms knows nothing"),
        ("rayfl.local.context", "def f():\n    import rayfl.cluster.actors as a", "rayfl.local knows nothing"),
        ("rayfl.models.lenet5", "from rayfl import report", "rayfl.models knows nothing"),
        (
            "rayfl.data.sources.femnist",
            "if TYPE_CHECKING:\n    from rayfl.simulation import run",
            "rayfl.data knows nothing",
        ),
        ("rayfl.engine.scheduler", "import rayfl.report", "rayfl.engine knows nothing"),
        ("rayfl.report.status", "from rayfl.callbacks.callback import Ending", "rayfl.report knows nothing"),
        ("rayfl.callbacks.follower", "from rayfl.lifecycle.run import Run", "rayfl.callbacks knows nothing"),
        ("rayfl.engine.scheduler", "import ray", "only rayfl.cluster imports ray"),
        ("rayfl.scenario", "from ray.util import metrics", "only rayfl.cluster imports ray"),
        ("rayfl.scenario", "importlib.import_module('ray')", "only rayfl.cluster imports ray"),
        ("rayfl.config.phase", "from rayfl.cluster import preflight", "only who starts a run"),
        ("rayfl.errors", "from rayfl.data import data_sources", "a foundation rests"),
        ("rayfl.errors", "from rayfl import config", "a foundation rests"),
    ],
)
def test_the_rule_catches_an_offender(module: str, source: str, complaint: str) -> None:
    (found,) = [sentence for sentence in violations(source, module) if complaint in sentence]
    assert found.startswith(module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("rayfl.cluster.actors", "import ray\nfrom rayfl.engine.host import Host"),
        ("rayfl.session", "from rayfl.cluster.backend import RayBackend\nfrom rayfl.report.records import Records"),
        ("rayfl.engine.host", "from rayfl.models.flat import Flat\nfrom rayfl.errors import DataError"),
        ("rayfl.registry", "from rayfl.errors import ScenarioError"),
        ("rayfl.data.sources.femnist", "import raylib\nfrom rayfl.enginery import x"),
    ],
)
def test_the_rule_lets_pass_what_is_allowed(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_relative_imports_resolve_from_a_module_and_from_a_package() -> None:
    assert list(imported("from .b import c", "rayfl.a.m")) == [(1, "rayfl.a.b.c")]
    assert list(imported("from .b import c", "rayfl.a", is_package=True)) == [(1, "rayfl.a.b.c")]
    assert list(imported("from .. import c", "rayfl.a.m")) == [(1, "rayfl.c")]


@pytest.mark.slow
def test_everything_but_the_cluster_works_where_ray_is_not_installed() -> None:
    names = [name for name, _ in modules() if not inside(name, ("rayfl.cluster",)) and not name.endswith("__main__")]
    program = f"import sys, importlib\nsys.modules['ray'] = None\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr


def test_nothing_slow_is_loaded_before_ray_starts_nor_pytorch_by_server_and_scheduler() -> None:
    """Their processes start while the hosts load it, and compete with them for the CPUs."""
    program = f"""
import sys
import rayfl.session, rayfl.cluster.kept_cluster
assert not {{"torch", "ray", "pyarrow", "numpy"}} & set(sys.modules)
import rayfl.cluster.scheduler_actor, rayfl.cluster.server_actor
from rayfl.component import build_component
from rayfl.config.scenario import Scenario
from rayfl.planning.phase_plan import plan_phases
from rayfl.tasks import tasks
from rayfl.tasks.task import Task
for name in {list(algorithms)!r}:
    phase = {{"name": "p", "rounds": 1, "cohort": 1, "algorithm": name, "transforms": ["top_k", "quantize"]}}
    scenario = Scenario.from_tables({{"data": {{"name": "femnist"}}, "model": "lenet5", "phases": [phase]}})
    plan_phases(scenario)
for name in {list(tasks)!r}:
    build_component(tasks, Task, name)
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.takes("a new process loads PyTorch")
def test_a_host_and_then_the_driver_load_only_what_they_use() -> None:
    """In one process, since a host loads less."""
    program = """
import sys
import rayfl.engine.host, rayfl.data.store
assert not {"pyarrow", "PIL", "matplotlib", "rich", "rayfl.data.loading", "ray"} & set(sys.modules)
import rayfl.lifecycle.launch
assert not {"ray", "matplotlib"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("registry", "name"),
    [
        pytest.param(registry, name, id=f"{registry.kind}-{name}")
        for registry in (
            data_sources,
            partitioners,
            labelings,
            collations,
            augmentations,
            models,
            algorithms,
            samplers,
            tasks,
            metrics,
            callbacks,
        )
        for name in registry
    ],
)
def test_every_registered_name_resolves(registry: Registry, name: str) -> None:
    assert callable(registry.resolve(name))
