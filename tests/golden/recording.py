"""What a golden run leaves, and the conditions under which its bits are expected again.

`python -m tests.golden.recording` runs every golden scenario anew and writes `recorded/CAPABILITY-KERNELS.json`;
`NAME ...` only those. With ATEN_CPU_CAPABILITY=avx2 and ONEDNN_MAX_CPU_ISA=AVX2 in the environment a processor with
AVX512 gives what PyTorch computes without it; MKL keeps to the processor that it finds.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

import rayfl
from tests.golden.scenarios import golden_scenarios

FOLDER = Path(__file__).with_name("recorded")
NOT_COMPARED = ("seconds",)
SAMPLED = 8
"""Values of every tensor that are kept, evenly spread over it, for a comparison within a tolerance."""


def kernels() -> str:
    """Tells processors apart on which PyTorch's results have other last bits: a digest of a few of them.

    MKL and oneDNN choose how to multiply by the maker and the model of a processor, which its capability leaves open.
    """
    digest = hashlib.sha256()
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        dense = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        convolutions = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 12 * 12, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip
        for network, shape, sizes in ((dense, (4,), range(1, 17)), (convolutions, (3, 32, 32), (8, 16))):
            for size in sizes:
                outputs = network(torch.randn(size, *shape))
                F.cross_entropy(outputs, torch.arange(size) % outputs.shape[1]).backward()  # type: ignore[no-untyped-call]
                features = outputs.detach()
                values = [features, features.T @ features, features.exp(), features.exp().log(), features.norm()]
                for value in values + [parameter.grad for parameter in network.parameters()]:
                    digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:8]


@cache
def conditions() -> dict[str, str]:
    """What decides the bits beside the scenario; glyphs of generated data come from matplotlib and pillow."""
    tools = {name: version(name) for name in ("torch", "numpy", "matplotlib", "pillow")}
    return tools | {"cpu": torch.backends.cpu.get_cpu_capability(), "kernels": kernels()}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """All recordings by the names of their files."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def of_these_conditions() -> dict[str, Any] | None:
    """What was recorded here or on a processor like this one, with the same tools."""
    return next((each["outcomes"] for each in recorded().values() if each["conditions"] == conditions()), None)


def outcome(tables: dict[str, Any]) -> dict[str, Any]:
    """Runs a scenario on the inline backend: the final model's digest, some of its values, and all metrics."""
    with tempfile.TemporaryDirectory() as out:
        result = rayfl.run(tables, backend="inline", out=out, data_dir=Path(out), console=Console(quiet=True))
        rows = result.metrics.to_pylist()
    metrics = [{k: value for k, value in row.items() if k not in NOT_COMPARED and value is not None} for row in rows]
    return described(result.state_dict) | {"metrics": metrics}


def described(state_dict: dict[str, torch.Tensor]) -> dict[str, Any]:
    """A model's digest and some of its values."""
    digest = hashlib.sha256()
    values: dict[str, list[float]] = {}
    for name, tensor in state_dict.items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
        sampled = tensor.double().flatten()[:: max(1, tensor.numel() // SAMPLED)].tolist()
        values[name] = [float(f"{value:.6g}") for value in sampled]
    return {"sha256": digest.hexdigest(), "values": values}


def main(names: Sequence[str]) -> None:
    torch.set_num_threads(1)
    scenarios, before = golden_scenarios(), of_these_conditions() or {}
    if names and not before:
        raise SystemExit(f"nothing was recorded under {conditions()}: record all")
    found = before | {name: outcome(scenarios[name]) for name in names or scenarios}
    write(f"{conditions()['cpu']}-{conditions()['kernels']}", conditions(), {name: found[name] for name in scenarios})


def write(name: str, under: dict[str, str], outcomes: dict[str, Any]) -> None:
    """Writes a recording, one line per scenario."""
    lines = ",\n".join(f"{json.dumps(each)}: {json.dumps(outcome)}" for each, outcome in outcomes.items())
    content = f'{{"conditions": {json.dumps(under)}, "outcomes": {{\n{lines}\n}}}}\n'
    (FOLDER / f"{name}.json").write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
