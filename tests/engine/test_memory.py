"""A process that trains keeps the memory that it frees; the garbage collector pauses during imports."""

import ctypes
import gc
import platform
import subprocess
import sys

import pytest

from rayfl.engine.memory import collection_paused, keep_freed_memory

STEPS = """
import ctypes, resource
from rayfl.engine.memory import keep_freed_memory

{first}

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def step():
    blocks = [ctypes.c_void_p(libc.malloc(2**20)) for _ in range(16)]
    for block in blocks:
        libc.memset(block, 1, 2**20)
    for block in blocks:
        libc.free(block)

for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(first: str) -> int:
    """Pages that the kernel hands out in twenty steps, each of which allocates, fills and frees 4096 of them."""
    done = subprocess.run([sys.executable, "-c", STEPS.format(first=first)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_that_is_freed_is_there_for_the_next_allocation() -> None:
    assert faults("keep_freed_memory()") < 1000
    assert faults("") > 20_000


def test_another_system_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("its C library was asked for"))
    keep_freed_memory()


def test_the_garbage_collector_pauses_and_goes_on_even_after_an_error() -> None:
    @collection_paused()
    def fail_to_import() -> None:
        assert not gc.isenabled()
        raise ImportError

    with pytest.raises(ImportError):
        fail_to_import()
    assert gc.isenabled()


def test_a_garbage_collector_that_the_program_has_turned_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
