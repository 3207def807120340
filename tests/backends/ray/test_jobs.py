from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_cluster import check


@pytest.mark.ray
@pytest.mark.slow
def test_a_submitted_job_on_two_nodes_gives_the_bits_of_the_inline_backend(tmp_path: Path) -> None:
    assert check(tmp_path, nodes=2, clients=50)
