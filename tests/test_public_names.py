"""Public names for user code: a stable set, which suffices for the examples."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rayfl

PACKAGE = Path(rayfl.__file__).parent
EXAMPLES = PACKAGE.parent / "examples"

PUBLIC = {
    "rayfl": """
        Callback ClientError Comparison DataError DivergenceError GridResult Handle RayflError Result RunSoFar Scenario
        ScenarioError Session __version__ attach compare grid load_scenario plot run submit
    """,
    "rayfl.algorithms": """
        Aggregation Algorithm Answer AnswerTransform Answers BiasedTransform CohortSampler Declaration Encoded Exchange
        FedAvg FedPer LocalTrainingAlgorithm Messages Part Penalty PersonalParts Released Requirement Round RoundContext
        SampleRequest SamplingContext ServerOptimizer ServerState SupportQuery Updates merged
    """,
    "rayfl.callbacks": "Callback RunSoFar",
    "rayfl.data": """
        Augmentation Compose Dataset Fields NaturalClients Provenance Ragged Rendered Samples Shards stream
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
    with pytest.raises(AttributeError, match=f"module '{room}' has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize("room", PUBLIC)
def test_type_checkers_see_what_is_loaded(room: str) -> None:
    module = import_module(room)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert {name: home for home, name in imports(block)} == module._HOMES
    assert {*module._HOMES} == {*module.__all__} - {"__version__"}


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
    assert {"rayfl.algorithms.Algorithm", "rayfl.models.Network", "rayfl.data.Dataset"} <= found


def test_a_room_loads_neither_its_names_nor_pytorch_before_they_are_used() -> None:
    program = f"""
import importlib, sys
for room in {list(PUBLIC)!r}:
    importlib.import_module(room)
assert "torch" not in sys.modules and "rayfl.runs.session" not in sys.modules
from rayfl.algorithms import Algorithm, Answer, CohortSampler, Exchange, FedAvg
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
