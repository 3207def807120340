"""Groups scenarios and grids by paper or topic, according to their folder in `scenarios/`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rayfl.config.finding import is_shipped

PAPERS: Mapping[str, str] = {
    "cyclicfl": "CyclicFL: Efficient Federated Learning with Cyclic Model Pre-Training",
    "fedbug": "FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning",
    "coprefl": "CoPreFL: Rethinking the Starting Point: Collaborative Pre-Training for Federated Downstream Tasks",
    "fps": "FPS: On the Importance and Applicability of Pre-Training for Federated Learning",
    "privacy": "Differential privacy",
    "asynchronous": "Asynchronous federated learning",
    "starts": "Starting points compared",
}
"""The title of every folder, in the order of the list."""

OTHERS = "Other scenarios shipped with rayfl"
OWN = "Your own"


def paper_of(path: Path) -> str:
    """The title of the group of a scenario or grid."""
    return PAPERS.get(path.parent.name, OTHERS) if is_shipped(path) else OWN


def in_order(title: str) -> int:
    """The position of a group in lists: your own files come first."""
    return [OWN, *PAPERS.values(), OTHERS].index(title)
