"""Who may import whom: the rooms of rayfl, and the registered names that lead into them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rayfl.algorithms import algorithms
from rayfl.algorithms.sampler import samplers
from rayfl.callbacks import callbacks
from rayfl.config.registry import Registry
from rayfl.data import augmentations, collations, data_sources, labelings, partitioners
from rayfl.models import models
from rayfl.tasks import tasks
from rayfl.tasks.metrics import metrics
from tools.structure import PACKAGE, Module, cycles, edges, imported, modules, room_cycles, second_round

ROOMS = (
    "rayfl.config",
    "rayfl.models",
    "rayfl.data",
    "rayfl.local",
    "rayfl.tasks",
    "rayfl.algorithms",
    "rayfl.privacy",
    "rayfl.engine",
    "rayfl.backends",
    "rayfl.callbacks",
    "rayfl.runs",
    "rayfl.service",
    "rayfl.studies",
    "rayfl.cli",
)
"""From the ground up: a room knows nothing of those that follow. Beneath it lie the foundations, the modules at the top
of the package."""

DOORS = {
    "rayfl": "rayfl.cli",
    "rayfl.__main__": "rayfl.cli",
    "rayfl.scenario": "rayfl.cli",
    "rayfl.schedules": "rayfl.engine",
}
"""Modules at the top that only lead into a room: no foundations, and open to whatever lies above that room."""

MAY_IMPORT_RAY = ("rayfl.backends.ray", "rayfl.service")


def room_of(module: str) -> str:
    """The room of a module, "" for foundations."""
    if module in DOORS:
        return DOORS[module]
    return next((room for room in ROOMS if inside(module, (room,))), "")


def inside(module: str, rooms: tuple[str, ...]) -> bool:
    return any(module == room or module.startswith(room + ".") for room in rooms)


def violations(module: Module) -> list[str]:
    """One sentence for every import that breaks the rule."""
    height = {"": -1} | {room: number for number, room in enumerate(ROOMS)}
    room, found = room_of(module.name), []
    for line, name in imported(module):
        if name.split(".")[0] == "rayfl" and name not in ("rayfl", "rayfl.__version__"):
            above = room_of(name)
            if height[above] > height[room]:
                found.append(f"{module.name}:{line} imports {name}: {room or 'a foundation'} lies below {above}")
        if inside(name, ("ray",)) and not inside(module.name, MAY_IMPORT_RAY):
            found.append(f"{module.name}:{line} imports {name}: only rayfl.backends.ray and rayfl.service import ray")
    return list(dict.fromkeys(found))


def test_every_room_imports_only_what_lies_below() -> None:
    found = modules()
    assert {*ROOMS, *DOORS} <= set(found)
    wrong = [sentence for module in found.values() for sentence in violations(module)]
    assert not wrong, "\n".join(wrong)


def test_no_rooms_import_each_other() -> None:
    assert room_cycles(edges(modules())) == []


def test_no_file_is_long_and_a_round_passes_through_few() -> None:
    lengths = {name: module.lines for name, module in modules().items()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
    assert second_round().files <= 80


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("rayfl.algorithms.fedavg", "from rayfl.engine.sums import exact", "rayfl.algorithms lies below"),
        ("rayfl.algorithms.fedavg", "from ..engine import sums", "rayfl.algorithms lies below"),
        ("rayfl.local.context", "def f():\n    import rayfl.backends.ray.actors as a", "rayfl.local lies below"),
        ("rayfl.models.lenet5", "from rayfl import runs", "rayfl.models lies below"),
        ("rayfl.data.femnist", "if TYPE_CHECKING:\n    from rayfl.runs.simulation import run", "rayfl.data lies below"),
        ("rayfl.config.phase", "PATH = 'rayfl.engine.schedules.parallel:Parallel'", "rayfl.config lies below"),
        ("rayfl.callbacks.callback", "from rayfl.runs.status import Status", "rayfl.callbacks lies below"),
        ("rayfl.runs.launch", "from rayfl.service import submission", "rayfl.runs lies below"),
        ("rayfl.studies.grid.page", "from rayfl import scenario", "rayfl.studies lies below"),
        ("rayfl.engine.scheduler", "import ray", "only rayfl.backends.ray and rayfl.service"),
        ("rayfl.cli.run", "from ray.util import metrics", "only rayfl.backends.ray and rayfl.service"),
        ("rayfl.cli.run", "importlib.import_module('ray')", "only rayfl.backends.ray and rayfl.service"),
        ("rayfl.errors", "from rayfl.data import data_sources", "a foundation lies below"),
        ("rayfl.errors", "from rayfl import config", "a foundation lies below"),
    ],
)
def test_the_rule_catches_an_offender(module: str, source: str, complaint: str) -> None:
    (found,) = [sentence for sentence in violations(Module(module, source, False)) if complaint in sentence]
    assert found.startswith(module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("rayfl.backends.ray.actors", "import ray\nfrom rayfl.engine.host import Host"),
        ("rayfl.runs.session", "from rayfl.backends.ray import session\nfrom rayfl.runs.records import Records"),
        ("rayfl.engine.host", "from rayfl.models.flat import Flat\nfrom rayfl.errors import DataError"),
        ("rayfl.files", "from rayfl.errors import ScenarioError"),
        ("rayfl.data.femnist", "import raylib\nMEANT = 'your own rayfl.engine.Thing in prose'"),
        ("rayfl.runs.fingerprint", "import rayfl"),
    ],
)
def test_the_rule_lets_pass_what_is_allowed(module: str, source: str) -> None:
    assert violations(Module(module, source, False)) == []


def test_relative_imports_resolve_from_a_module_and_from_a_package() -> None:
    assert list(imported(Module("rayfl.a.m", "from .b import c", False))) == [(1, "rayfl.a.b.c")]
    assert list(imported(Module("rayfl.a", "from .b import c", True))) == [(1, "rayfl.a.b.c")]
    assert list(imported(Module("rayfl.a.m", "from .. import c", False))) == [(1, "rayfl.c")]


def test_cycles_are_found() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [["a", "b", "c"]]
    assert cycles({"a": ["b"], "b": []}) == []


@pytest.mark.slow
def test_everything_but_the_cluster_works_where_ray_is_not_installed() -> None:
    without = (*MAY_IMPORT_RAY, "rayfl.cli.submitted_runs")  # whose commands are those of submitted runs
    names = [name for name in modules() if not inside(name, without) and not name.endswith("__main__")]
    program = f"import sys, importlib\nsys.modules['ray'] = None\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr


def test_nothing_slow_is_loaded_before_ray_starts_nor_pytorch_by_server_and_scheduler() -> None:
    """Their processes start while the hosts load it, and compete with them for the CPUs."""
    program = f"""
import sys
import rayfl.runs.session, rayfl.backends.ray.kept_cluster
assert not {{"torch", "ray", "pyarrow", "numpy"}} & set(sys.modules)
import rayfl.backends.ray.scheduler_actor, rayfl.backends.ray.server_actor
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.phase_plan import plan_phases
from rayfl.tasks import tasks
from rayfl.tasks.construction import TASKS
for name in {list(algorithms)!r}:
    phase = {{"name": "p", "rounds": 1, "cohort": 1, "algorithm": name, "transforms": ["top_k", "quantize"]}}
    scenario = Scenario.from_tables({{"data": {{"name": "femnist"}}, "model": "lenet5", "phases": [phase]}})
    plan_phases(scenario)
for name in {list(tasks)!r}:
    TASKS.build(name)
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
assert not {"pyarrow", "PIL", "matplotlib", "rich", "rayfl.data.scenario_data", "ray"} & set(sys.modules)
import rayfl.runs.launch
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
