"""The memory that loading takes, as a multiple of the data: `python -m pytest -s tests/data/test_memory.py` prints it.

It is the proportional set size of memory without a file behind it that a thread samples in another process, less that
before the source is loaded. The pages of a mapped file can be dropped at any time, and those of libraries are divided
by the number of processes that happen to use them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 64
WIDTH, CLIENTS = 250, 100
ROWS = MIB * 2**20 // 4 // WIDTH
FLOOR_MIB = 14
"""Above every limit: chunks under way, caches of allocators, labels and row numbers."""

LIMITS = {"arrays": 1.2, "npz_file": 1.2, "parquet_folder": 1.2, "parquet_folder, columns": 1.2, "arrow_file": 0.2}
"""The largest peak, as a multiple of the data; arrays of a function that makes them in place count once."""

MEASURE = """
import json, sys, threading, types
import numpy as np
import pyarrow.compute, pyarrow.dataset, pyarrow.parquet
import rayfl.data.batch_trial, rayfl.data.scenario_data, rayfl.data.sources.own_files
from pathlib import Path
from rayfl.config.data import Data
from rayfl.data.store import build_store

pyarrow.chunked_array([[1]]).to_numpy()  # imports pandas where there is one
folder, rows, width, clients = Path(sys.argv[1]), *map(int, sys.argv[2:])

def made():
    x, rng = np.empty((rows, width), np.float32), np.random.default_rng(0)
    for row in x:
        rng.random(out=row, dtype=np.float32)
    owner, cut = rng.integers(0, clients, rows), rows - rows // 10
    return {"train": (x[:cut], owner[:cut] % 10, owner[:cut]), "test": (x[cut:], owner[cut:] % 10)}

sys.modules["made"] = types.SimpleNamespace(made=made, __name__="made")
made.__module__ = "made"

def mib():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024

def measured(data):
    base = peak = mib()
    done = threading.Event()
    def watch():
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, mib())
    watcher = threading.Thread(target=watch)
    watcher.start()
    store = build_store(Data.model_validate(data | {"partition": "natural"}), 0, folder, folder)
    kept = mib()
    done.set()
    watcher.join()
    assert store.num_clients == clients
    return max(peak, kept) - base, kept - base

columns = {"label": "label", "owner": "owner"}
sources = {
    "arrays": {"name": "made:made"},
    "npz_file": {"name": "npz_file", "options": {"path": str(folder / "data.npz")}},
    "parquet_folder": {"options": {"path": str(folder / "lists"), "inputs": "x", **columns}},
    "parquet_folder, columns": {
        "options": {"path": str(folder / "columns"), "inputs": [f"x{place}" for place in range(width)], **columns}
    },
    "arrow_file": {"name": "arrow_file", "options": {"path": str(folder / "data.arrow"), "inputs": "x", **columns}},
}
for name, data in sources.items():
    print(json.dumps([name, *measured({"name": "parquet_folder"} | data)]))
    pyarrow.default_memory_pool().release_unused()
"""


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    x, owner = rng.random((ROWS, WIDTH), np.float32), rng.integers(0, CLIENTS, ROWS)
    cut = ROWS - ROWS // 10
    arrays = {"train_x": x[:cut], "train_y": owner[:cut] % 10, "train_owner": owner[:cut]}
    np.savez(folder / "data.npz", **arrays, test_x=x[cut:], test_y=owner[cut:] % 10)  # type: ignore[arg-type]
    others = {"label": owner % 10, "owner": owner}
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), WIDTH), **others})
    with pa.ipc.new_file(str(folder / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    wide = pa.table({**{f"x{place}": values for place, values in enumerate(x.T)}, **others})
    for name, whole in (("lists", table), ("columns", wide)):
        (folder / name).mkdir()
        for number, start in enumerate(range(0, ROWS, ROWS // 2 + 1)):
            pq.write_table(whole.slice(start, ROWS // 2 + 1), folder / name / f"{number}.parquet")


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says what a process shares")
def test_loading_takes_the_data_once_and_next_to_nothing_for_a_mapped_file(tmp_path: Path) -> None:
    write(tmp_path)
    command = [sys.executable, "-c", MEASURE, str(tmp_path), *map(str, (ROWS, WIDTH, CLIENTS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {name: (peak, kept) for name, peak, kept in map(json.loads, done.stdout.splitlines())}
    for name, (peak, kept) in found.items():
        print(f"{name:24} peak {peak / MIB:.2f}, kept {kept / MIB:.2f}")
    assert found.keys() == LIMITS.keys()
    assert not {name: peak for name, (peak, _) in found.items() if peak > LIMITS[name] * MIB + FLOOR_MIB}
