"""What the answers of a cluster's nodes mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rayfl.backends.ray.tasks import NodeAnswer
from rayfl.cli.doctor.cluster import NodeFacts, node_checks

VERSIONS = {"Python": "3.11.7", "rayfl": "1.0", "torch": "2.15.0", "ray": "2.60.0"}
HERE = NodeFacts(VERSIONS, "13.2", 0, True)


def judged(gpus: float = 0, error: str = "", **changes: Any) -> list[tuple[str, str, str]]:
    """The state, finding and remedy of each check of a node that differs from this machine by some facts."""
    answer = NodeAnswer("10.0.0.2", {"CPU": 4.0, "GPU": gpus}, None if error else HERE._replace(**changes), error)
    checks = list(node_checks([answer], HERE, Path("/data")))
    assert {check.name for check in checks} == {"node 10.0.0.2"}
    return [(check.state, check.found, check.remedy) for check in checks]


def test_a_node_like_this_machine_is_ready() -> None:
    assert judged() == [("ok", "4 CPUs, 0 GPUs for Ray; PyTorch 2.15.0", "")]


def test_a_node_whose_gpus_pytorch_does_not_see_is_asked_for_its_driver_before_another_pytorch() -> None:
    ((state, found, remedy),) = judged(gpus=2)
    assert (state, found) == ("problem", "2 GPUs for Ray, but PyTorch sees 0")
    assert "nvidia-smi" in remedy
    ((_, _, remedy),) = judged(gpus=2, built_for=None)
    assert remedy == "install a CUDA build of PyTorch there"


def test_other_versions_missing_data_and_silence_are_named() -> None:
    ((state, found, _),) = judged(versions=VERSIONS | {"torch": "2.14.0"})
    assert (state, found) == ("problem", "has torch 2.14.0, here 2.15.0")
    ((state, found, _),) = judged(has_data=False)
    assert (state, found) == ("warning", "has no data folder '/data'")
    ((state, found, _),) = judged(error="ModuleNotFoundError: No module named 'rayfl'")
    assert (state, found) == ("problem", "ModuleNotFoundError: No module named 'rayfl'")
