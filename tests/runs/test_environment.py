from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from importlib.metadata import packages_distributions
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.config.user_modules import edited
from rayfl.engine.device import platform_facts
from rayfl.engine.host import Host
from rayfl.runs import environment
from rayfl.runs.environment import describe_environment
from tests.engine.scenes import prepared


def test_a_host_says_what_of_pytorch_decides_its_bits() -> None:
    job = prepared(numerics={"threads": 1})
    described = Host(0, job).describe()
    assert described["torch"] == torch.__version__
    assert described["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert described["threads"] == "1"
    assert "cudnn" not in described
    facts = json.loads(json.dumps(describe_environment(job, "inline", [described])))
    assert facts["hosts"] == [described]
    assert facts["numerics"]["threads"] == 1
    assert {"rayfl", "torch"} <= facts["packages"].keys()


def test_a_checkout_that_is_not_installed_says_its_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `ray job submit --working-dir .` brings it; readers of the records ask for it."""
    monkeypatch.setattr("rayfl.runs.environment._version", lambda package: None)
    job = prepared()
    assert describe_environment(job, "inline", [Host(0, job).describe()])["packages"] == {"rayfl": rayfl.__version__}


def test_on_cuda_its_versions_and_tf32_are_said_as_well() -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU here")
    facts = platform_facts(torch.device("cuda", 0))
    assert facts["cuda"] == torch.version.cuda
    assert facts["cudnn"] == str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    assert facts["convolution_precision"] in ("tf32", "ieee", "none")


def test_a_package_is_found_among_the_distributions_that_provide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    provided = packages_distributions()
    for package in ("numpy", "pydantic", "PIL", "yaml", "absent_package"):  # Pillow and PyYAML are named otherwise
        assert environment._distributions_of(package) == provided.get(package, [])
    environment._distributions_of.cache_clear()
    monkeypatch.setattr(environment, "_all_distributions", lambda: pytest.fail("all of them were read"))
    assert environment._distributions_of("numpy") == ["numpy"]


SOURCE = """
import numpy as np

def made():
    x = np.eye(4, dtype=np.float32) * {scale}
    y = np.arange(4) % 2
    return x, y, x, y
"""


def test_a_module_that_was_edited_is_recorded_as_it_was_imported_until_it_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    phase = {"name": "p", "rounds": 1, "cohort": 1}
    scenario = {"name": "s", "data": {"name": "edited_data:made", "clients": 1}, "model": "mlp", "phases": [phase]}

    def recorded(number: int) -> tuple[str, float, str]:
        text = StringIO()
        console = Console(file=text, width=200)
        result = rayfl.run(scenario, folder=tmp_path / str(number), backend="inline", curves=False, console=console)
        code = json.loads((result.directory / "environment.json").read_text())["code"]
        return code["edited_data"], result.metrics["test_loss"][0].as_py(), text.getvalue()

    sources = [SOURCE.format(scale=scale) for scale in (1, 100)]
    before, after = (hashlib.sha256(source.encode()).hexdigest() for source in sources)
    file = tmp_path / "edited_data.py"
    file.write_text(sources[0])
    digest, loss, said = recorded(0)
    assert (digest, "was edited" in said) == (before, False)
    file.write_text(sources[1])
    assert recorded(1)[:2] == (before, loss)
    assert "edited_data was edited after this program had imported it; restart" in recorded(2)[2]
    importlib.reload(sys.modules["edited_data"])
    digest, other_loss, said = recorded(3)
    assert (digest, "was edited" in said) == (after, False)
    assert other_loss != loss


def test_an_edit_between_the_import_of_a_module_and_the_first_run_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    sources = [SOURCE.format(scale=1), SOURCE.format(scale=100), "half of a line ("]
    for number, source in enumerate(sources):
        name = f"edited_before_{number}"
        file = tmp_path / f"{name}.py"
        file.write_text(sources[0])
        importlib.import_module(name)
        file.write_text(source)
        os.utime(file, (1, 1))  # also a file that was only touched
        phase = {"name": "p", "rounds": 1, "cohort": 1}
        plan = prepared(data={"name": f"{name}:made", "clients": 1}, model="mlp", phases=[phase])
        assert edited(plan.worker_code) == ([name] if number else [])
        assert (plan.code[name] == hashlib.sha256(source.encode()).hexdigest()) == (not number)
