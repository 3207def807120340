"""Checks the nodes of a Ray cluster, by a task on each of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rayfl.cli.doctor.check import Check
from rayfl.data.files import data_folder

if TYPE_CHECKING:
    from rayfl.backends.ray.tasks import NodeAnswer

GROUP = "cluster"

ANSWERS_WITHIN_S = 120.0
"""How long all nodes together may take; a task loads PyTorch."""


class NodeFacts(NamedTuple):
    """What a task finds on its node.

    Attributes:
        versions: Of Python and of the packages on which the bits of a run depend.
        built_for: The version of CUDA that PyTorch was built for; None for a build without CUDA.
        gpus: Number of GPUs that PyTorch sees.
        has_data: Whether the data folder exists.
    """

    versions: Mapping[str, str]
    built_for: str | None
    gpus: int
    has_data: bool


def node_facts(data: Path) -> NodeFacts:
    """The facts about the machine on which it is called."""
    import torch

    versions = {"Python": platform.python_version(), **{name: version(name) for name in ("rayfl", "torch", "ray")}}
    return NodeFacts(versions, torch.version.cuda, torch.cuda.device_count(), data.is_dir())


def cluster_checks(address: str) -> Iterator[Check]:
    """Runs a task on each node of a cluster, and compares what it finds with this machine.

    Raises:
        ResourceError: No cluster answers at the address.
    """
    from rayfl.backends.ray.connection import attached
    from rayfl.backends.ray.tasks import ask_every_node

    data = data_folder().absolute()
    with attached(address, workers_print=False):
        yield from node_checks(ask_every_node(node_facts, data, within_s=ANSWERS_WITHIN_S), node_facts(data), data)


def node_checks(answers: Sequence[NodeAnswer], here: NodeFacts, data: Path) -> Iterator[Check]:
    """Judges the answers of the nodes.

    Args:
        answers: Each with `NodeFacts`, or an error.
        here: The facts about this machine.
        data: The data folder.
    """
    for answer in answers:
        name, cpus, gpus = f"node {answer.address}", answer.resources.get("CPU", 0), answer.resources.get("GPU", 0)
        found = f"{cpus:g} CPUs, {gpus:g} GPUs for Ray"
        if answer.error:
            remedy = "install rayfl there, in the same environment as here, and see that Ray can start processes"
            yield Check(GROUP, name, answer.error, "problem", remedy)
            continue
        facts: NodeFacts = answer.value
        differing = [f"{package} {facts.versions[package]}, here {own}" for package, own in here.versions.items()
                     if facts.versions[package] != own]  # fmt: skip
        if differing:
            yield Check(GROUP, name, f"has {'; '.join(differing)}", "problem", "install the same versions on all nodes")
        if gpus > facts.gpus:
            remedy = "see what nvidia-smi says there: the driver is missing or too old, or hidden from the container"
            if facts.built_for is None:
                remedy = "install a CUDA build of PyTorch there"
            yield Check(GROUP, name, f"{gpus:g} GPUs for Ray, but PyTorch sees {facts.gpus}", "problem", remedy)
        if here.has_data and not facts.has_data:
            remedy = "copy the data to all nodes, or name a folder on shared storage with --data-dir"
            yield Check(GROUP, name, f"has no data folder '{data}'", "warning", remedy)
        elif not differing and gpus <= facts.gpus:
            yield Check(GROUP, name, f"{found}; PyTorch {facts.versions['torch']}")
