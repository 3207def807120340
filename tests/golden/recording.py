"""What a golden run leaves, and the conditions under which its bits are expected again.

`python -m tests.golden.recording` runs every golden scenario anew and writes `recorded/<CPU capability>.json`;
`NAME ...` only those. With ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 in the environment a processor with
AVX512 gives the bits that were recorded on one without.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import rayfl
from tests.golden.scenarios import golden_scenarios

FOLDER = Path(__file__).with_name("recorded")
NOT_COMPARED = ("seconds",)
SAMPLED = 8
"""Values of every tensor that are kept, evenly spread over it, for a comparison within a tolerance."""


def conditions() -> dict[str, str]:
    """What decides the bits beside the scenario; glyphs of generated data come from matplotlib and pillow."""
    tools = {name: version(name) for name in ("torch", "numpy", "matplotlib", "pillow")}
    return tools | {"cpu": torch.backends.cpu.get_cpu_capability()}


def recorded() -> dict[str, Any]:
    """What was recorded on this machine's kind of processor, else on another."""
    own = FOLDER / f"{conditions()['cpu']}.json"
    path = own if own.exists() else min(FOLDER.glob("*.json"))
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def outcome(tables: dict[str, Any]) -> dict[str, Any]:
    """Runs a scenario on the inline backend: the final model's digest, some of its values, and all metrics."""
    with tempfile.TemporaryDirectory() as out:
        result = rayfl.run(tables, backend="inline", out=out, data_dir=Path(out), console=Console(quiet=True))
        rows = result.metrics.to_pylist()
    metrics = [{key: value for key, value in row.items() if key not in NOT_COMPARED} for row in rows]
    return described(result.state_dict) | {"metrics": metrics}


def described(state_dict: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A model's digest and some of its values."""
    digest = hashlib.sha256()
    values: dict[str, list[float]] = {}
    for name, tensor in state_dict.items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
        values[name] = tensor.double().flatten()[:: max(1, tensor.numel() // SAMPLED)].tolist()
    return {"sha256": digest.hexdigest(), "values": values}


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    scenarios = golden_scenarios()
    path = FOLDER / f"{conditions()['cpu']}.json"
    before = json.loads(path.read_text()) if names else {"outcomes": {}}
    if names and before["conditions"] != conditions():
        raise SystemExit(f"the others were recorded under {before['conditions']}: record them all")
    outcomes = before["outcomes"] | {name: outcome(scenarios[name]) for name in names or scenarios}
    kept = {name: outcomes[name] for name in scenarios}
    path.write_text(json.dumps({"conditions": conditions(), "outcomes": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
