"""Public names for user code: a stable set, which suffices for the examples."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, SourcelessFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import rayfl
from rayfl.lazy_names import lazy_names

PACKAGE = Path(rayfl.__file__).parent
EXAMPLES = PACKAGE.parent / "examples"

PUBLIC = {
    "rayfl": """
        AnalysisResult Callback ClientError Comparison DataError DivergenceError GridResult Handle RayflError Result
        RunSoFar Scenario ScenarioError Session __version__ analyse attach compare grid load_scenario plot run submit
    """,
    "rayfl.algorithms": """
        Adagrad Adam Aggregation Algorithm Answer AnswerTransform Answers BiasedTransform CoPreFL CohortSampler
        Contrastive Declaration Decorrelation Ditto Encoded Exchange FedAvg FedBABU FedBN FedDyn FedExP FedMeta FedNova
        FedPer LocalTrainingAlgorithm Messages Momentum Orchestra Part Penalty PerFedAvg PersonalParts Proximal QFedAvg
        QFedSGD Released Requirement Round RoundContext SGD SampleRequest SamplingContext Scaffold ServerOptimizer
        ServerState SupportQuery Updates Yogi merged
    """,
    "rayfl.callbacks": "Callback RunSoFar",
    "rayfl.data": """
        Augmentation ClientSource Compose Dataset Fields NaturalClients Provenance Ragged Rendered Samples Shards stream
    """,
    "rayfl.local": """
        Affine ClientContext ClientState ClientStreams ClientUpdate DataView EvaluationBatch Features Gradient
        HessianVectorProduct Labels LocalTraining Loss LossAndGradient LossTerm Outputs Rehearsal TrainingBatch
        TrainingStep features_and_outputs
    """,
    "rayfl.models": "Network",
    "rayfl.schedules": """
        Asynchronous AsynchronousPhase BasePhase Call Cohort Event Everybody Participant Participation PhasePlan
        RoundIndex Schedule ScheduleContext Simulated Staleness Submitted SubmittedRound VirtualClock at_home
        longest_first segments
    """,
    "rayfl.tasks": """
        Classification Metric Multilabel NextSymbol Reduction Regression Segmentation Task
    """,
}
"""Removing a name, or moving it to another package, breaks user code."""


def imports(tree: ast.AST) -> list[tuple[str, str]]:
    """(module, name) of all imports from rayfl."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rayfl":
            found += [(str(node.module), alias.name) for alias in node.names]
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "rayfl"]
    return found


@pytest.mark.parametrize("room", PUBLIC)
def test_a_room_offers_these_names_and_no_others(room: str) -> None:
    module = import_module(room)
    assert sorted(module.__all__) == sorted(PUBLIC[room].split())
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert not isinstance(getattr(module, name), ModuleType)
    with pytest.raises(AttributeError, match=f"module '{room}' has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize("room", PUBLIC)
def test_completion_and_star_imports_find_the_public_names(room: str) -> None:
    imported: dict[str, object] = {}
    exec(f"from {room} import *", imported)  # noqa: S102
    assert {*imported} - {"__builtins__"} == {*dir(import_module(room))} == {*PUBLIC[room].split()}


def test_names_whose_source_is_not_installed_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("rayfl_without_source")
    module.__spec__ = ModuleSpec(module.__name__, SourcelessFileLoader(module.__name__, "rayfl_without_source.pyc"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    find, names = lazy_names(module.__name__)
    for read in (names, lambda: find("run")):
        with pytest.raises(ImportError, match="public names of rayfl_without_source are read from its source"):
            read()


def test_the_examples_import_public_names_alone() -> None:
    seen, public = set(), {room: names.split() for room, names in PUBLIC.items()}
    for path in sorted(EXAMPLES.glob("*.py")):
        for module, name in imports(ast.parse(path.read_text())):
            assert module in public, f"{path.name} imports from {module}"
            assert not name or name in public[module], f"{path.name} imports {name} from {module}"
            seen.add(module)
    assert {"rayfl", "rayfl.algorithms", "rayfl.data", "rayfl.local", "rayfl.schedules"} <= seen


def test_messages_and_docstrings_send_users_to_public_names() -> None:
    deeper = re.compile(r"(rayfl\.[a-z]+)((?:\.[a-z_]+)*)\.([A-Z][A-Za-z]+)")
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for room, modules, name in deeper.findall(path.read_text()):
            if room in PUBLIC and name in PUBLIC[room].split():
                assert not modules, f"{path.name} sends users to {room}{modules}.{name}; {room}.{name} is kept"
                found.add(f"{room}.{name}")
    assert {"rayfl.tasks.Metric", "rayfl.models.Network", "rayfl.data.Dataset"} <= found


def test_a_room_loads_neither_its_names_nor_pytorch_before_they_are_used() -> None:
    program = f"""
import importlib, sys
for room in {list(PUBLIC)!r}:
    dir(importlib.import_module(room))
assert "torch" not in sys.modules and "rayfl.runs.session" not in sys.modules
from rayfl.algorithms import Algorithm, Answer, CohortSampler, Exchange, FedAvg
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
