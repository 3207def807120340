"""On a cluster, nodes copy the fragments of the clients that they train, and train the model of data in memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.data.prepared.test_memory import step

MIB = 24


@pytest.mark.slow
def test_each_node_copies_its_own_fragments_and_the_model_is_that_of_data_in_memory(tmp_path: Path) -> None:
    on_nodes = step("on_nodes", tmp_path, MIB)
    assert on_nodes["model"] == step("loaded_here", tmp_path / "here", MIB)["model"]
    nodes_of = Counter(copy for copies in on_nodes["copies"] for copy in copies)
    everywhere = 3  # the labels of both sets, and the test samples
    assert on_nodes["fragments"] > 20
    assert len(nodes_of) == on_nodes["fragments"] + everywhere
    assert sum(nodes_of.values()) < 2 * on_nodes["fragments"] + 3 * everywhere  # all three for each by chance
