"""Tensors in memory up to a budget, and in a file without a name beyond it."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rayfl.engine.state.tensor_memory import KeptTensor, ScratchFile, TensorMemory
from rayfl.errors import ResourceError

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16)

shapes = st.lists(st.integers(0, 5), max_size=3)
actions = st.lists(st.tuples(shapes, st.sampled_from(DTYPES)) | st.integers(0, 20), max_size=30)
"""What to keep, or which of those that are kept to drop."""


@settings(max_examples=150, deadline=None)
@given(actions=actions, budget=st.integers(0, 1000))
def test_any_kept_tensors_come_back_unchanged_and_memory_stays_in_its_budget(
    actions: list[tuple[list[int], torch.dtype] | int], budget: int
) -> None:
    memory, kept = TensorMemory(budget), list[tuple[torch.Tensor, KeptTensor]]()
    for number, action in enumerate(actions):
        if isinstance(action, int):
            del kept[action : action + 1]
        else:
            shape, dtype = action
            tensor = (torch.arange(1, 1 + int(np.prod(shape))) * (number + 1)).reshape(shape).to(dtype)
            kept.append((tensor, memory.keep(tensor)))
        assert memory.bytes_in_memory <= budget
        assert all(same(handle.copy(CPU), tensor) for tensor, handle in kept)
    kept.clear()
    assert memory.bytes_in_memory == memory.bytes_on_disk == 0


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def test_tensors_over_budget_go_to_disk_until_memory_is_freed() -> None:
    memory = TensorMemory(32)
    first = memory.keep(torch.ones(6))
    second = memory.keep(torch.ones(6))
    assert (memory.bytes_in_memory, memory.bytes_on_disk) == (24, 24)
    del first
    third = memory.keep(torch.ones(8))
    assert (memory.bytes_in_memory, memory.bytes_on_disk) == (32, 24)
    assert second.array().tolist() == [1] * 6
    assert third.array().tolist() == [1] * 8


def test_room_on_the_disk_is_used_again() -> None:
    """States of ever new rounds replace each other, as rounds stage and commit them."""
    memory = TensorMemory(0)
    states = [memory.keep(torch.full((100,), float(client))) for client in range(10)]
    for round in range(50):
        staged = {
            client: memory.keep(torch.full((100,), float(round))) for client in (round % 10, (3 * round + 1) % 10)
        }
        for client, state in staged.items():
            states[client] = state
    assert memory.bytes_on_disk <= 12 * 400


def test_a_tensor_on_disk_is_that_of_one_in_memory_whatever_its_layout() -> None:
    """Its strides too, since sums may follow them."""
    tensor = torch.arange(120.0).reshape(1, 2, 3, 20).to(memory_format=torch.channels_last).requires_grad_()
    in_memory, on_disk = (TensorMemory(budget).keep(tensor).copy(CPU) for budget in (1000, 0))
    assert torch.equal(in_memory, on_disk)
    assert in_memory.stride() == on_disk.stride()
    assert not in_memory.requires_grad


@pytest.mark.parametrize("budget", [0, 1000])
def test_kept_and_read_tensors_are_copies(budget: int) -> None:
    tensor = torch.ones(3)
    kept = TensorMemory(budget).keep(tensor)
    tensor.zero_()
    kept.copy(CPU).zero_()
    assert torch.equal(kept.copy(CPU), torch.ones(3))


def test_another_thread_may_be_the_last_to_refer_to_one() -> None:
    """As a snapshot's does to a state that was replaced while it was written."""
    memory = TensorMemory(0)
    captured = [memory.keep(torch.ones(5))]
    thread = Thread(target=captured.clear)
    thread.start()
    thread.join()
    assert memory.bytes_on_disk == 0


def test_no_folder_lists_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing can be left behind: the system frees it with its process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = open_files()
    memory = TensorMemory(0)
    assert open_files() == before, "a run that needs none opens none"
    kept = memory.keep(torch.ones(1000))
    (path,) = open_files() - before
    assert Path(path).parent == tmp_path
    assert path.endswith("(deleted)")
    assert not list(tmp_path.iterdir())
    del kept, memory
    assert open_files() == before


def open_files() -> set[str]:
    return {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


def test_a_full_disk_is_told_and_nothing_of_what_was_kept_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    memory = TensorMemory(0)
    kept = memory.keep(torch.ones(100))
    said = f"the disk of '{tmp_path}', which holds .* takes no more .*raise resources.client_state_gb"
    with largest_file(1000), pytest.raises(ResourceError, match=said):
        memory.keep(torch.ones(200))
    assert memory.bytes_on_disk == 400
    assert torch.equal(kept.copy(CPU), torch.ones(100))


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to make a file any larger, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_piece_that_is_released_joins_its_neighbours() -> None:
    file = ScratchFile()
    first, second, third, last = (file.write(memoryview(bytes(10))) for _ in range(4))
    file.release(first, 10)
    file.release(third, 10)
    file.release(second, 10)
    assert file.write(memoryview(bytes(30))) == first, "one gap of three"
    file.release(last, 10)
    assert file.size == 30
    file.release(first, 30)
    assert file.size == 0
