from __future__ import annotations

import json
from importlib.metadata import packages_distributions

import pytest
import torch

import rayfl
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
