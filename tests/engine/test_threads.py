"""The number of threads that PyTorch computes with."""

from __future__ import annotations

import os

import pytest
import torch

from rayfl.engine.device import use_threads
from rayfl.errors import ResourceError


def test_more_threads_than_the_machine_has_cpus_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    before = torch.get_num_threads()
    with pytest.raises(ResourceError, match=r"numerics.threads: 5 is more than the 4 CPUs of this machine; lower it"):
        use_threads(5)
    assert torch.get_num_threads() == before
    use_threads(before)
    assert torch.get_num_threads() == before
