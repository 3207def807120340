"""Assigns clients to the nodes that have read their prepared data before, which changes no result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from rayfl.engine.assignment import BASE_STEPS, Group, longest_first


def near_data(
    groups: Sequence[Group], steps: Sequence[int], fragments: Sequence[int], nodes: Sequence[object]
) -> list[list[Group]]:
    """Spreads groups over workers: by their fragment to a node, and within it the longest first.

    Nodes are ranked for each fragment by a hash of both (rendezvous hashing: Thaler and Ravishankar, 1998), in
    proportion to their workers, so that a node that joins or leaves takes or leaves only its own fragments. A group
    goes to the first node that has less than its part of the work (bounded loads: Mirrokni et al., 2018), fragment by
    fragment, so that few fragments are divided and no node has to keep more fragments than others.

    Args:
        groups: The groups.
        steps: Steps of each group, all of its updates together.
        fragments: The fragment of each group.
        nodes: The node of every worker.

    Returns:
        The groups of each worker.
    """
    names = list(dict.fromkeys(nodes))
    workers = {name: [worker for worker, node in enumerate(nodes) if node == name] for name in names}
    share = np.array([len(workers[name]) / len(nodes) for name in names])
    distinct, which = np.unique(np.asarray(fragments, np.int64), return_inverse=True)
    order = ranked(distinct, names, share)
    costs = [cost + BASE_STEPS * len(group) for cost, group in zip(steps, groups, strict=True)]
    room = sum(costs) * share
    on_node: list[list[int]] = [[] for _ in names]
    for place in sorted(range(len(groups)), key=lambda place: (fragments[place], -costs[place])):
        fitting = (node for node in order[which[place]] if costs[place] <= room[node])
        node = next(fitting, None)
        node = int((room / share).argmax()) if node is None else node
        room[node] -= costs[place]
        on_node[node].append(place)
    assigned: list[list[Group]] = [[] for _ in nodes]
    for name, places in zip(names, on_node, strict=True):
        of_workers = longest_first([groups[at] for at in places], [steps[at] for at in places], len(workers[name]))
        for worker, own in zip(workers[name], of_workers, strict=True):
            assigned[worker] = own
    return assigned


def ranked(fragments: np.ndarray, nodes: Sequence[object], shares: np.ndarray) -> np.ndarray:
    """The order of nodes for each fragment.

    Args:
        fragments: [n] integers.
        nodes: The nodes.
        shares: [nodes] float64, how likely each is to come first.

    Returns:
        [n, nodes] integers, numbers of nodes.
    """
    keys = [int.from_bytes(hashlib.blake2b(str(node).encode(), digest_size=8).digest(), "big") for node in nodes]
    mixed = _mixed(fragments.astype(np.uint64)[:, None] ^ np.array(keys, np.uint64))
    uniform = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.argsort(-np.log1p(-uniform) / shares, axis=1, kind="stable")


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele et al., 2014): uint64 of which every bit depends on every bit."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed
