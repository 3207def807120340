"""Finished runs that tests of analyses share."""

from __future__ import annotations

import pytest

from rayfl.studies.analysis.run_folder import RunFolder
from tests.studies.analysis import scene


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two relay rounds, then four of FedAvg, with every model kept."""
    return scene.finished(tmp_path_factory.mktemp("finished"))
