"""The checks of a GPU, tried small on the CPU, and how their sections are run and reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rayfl.errors import ResourceError
from tools.gpu_check import __main__ as command
from tools.gpu_check import bits, memory, speed
from tools.gpu_check.scene import Device, Finding, Outcome, same_bytes
from tools.gpu_check.sections import SECTIONS, findings

CPU = Device("cpu")
WITHOUT_RAY = ("bits", "deterministic", "after", "cpu", "stacked", "memory", "mps")


@pytest.mark.takes("trains in every section")
@pytest.mark.parametrize("name", WITHOUT_RAY)
def test_a_section_finds_what_it_promises_on_the_cpu(name: str) -> None:
    found = list(SECTIONS[name](CPU))
    assert found
    assert all(finding.holds is not False for finding in found), found
    assert all(finding.holds is None for finding in found if finding.figure == "not checked")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("name", ["bare", "fractions", "pfl"])
def test_a_section_that_measures_speed_runs_on_the_cpu(name: str) -> None:
    assert all(finding.holds is not False for finding in SECTIONS[name](CPU))


@pytest.mark.parametrize("case", bits.CASES)
def test_every_case_of_the_gpu_is_a_valid_scenario(case: str) -> None:
    assert bits.prepared(Device("cuda"), bits.CASES[case]).scenario.resources.uses_cuda


def test_models_with_a_different_bit_are_told_apart() -> None:
    model = np.zeros(5, np.float32)
    assert same_bytes("twice", Outcome(model, ()), Outcome(model.copy(), ())).holds
    other = model.copy()
    other[3] = 0.25
    different = same_bytes("twice", Outcome(model, ()), Outcome(other, ()))
    assert different.holds is False
    assert "1 of 5 values differ, by at most 0.25" in different.detail


def test_a_refusal_must_be_one_line_that_says_what_to_do() -> None:
    def refuses(text: str) -> Finding:
        def run() -> None:
            raise ResourceError(text)

        return memory.refusal("a batch", run)

    assert refuses("the GPU ran out of memory (x): use a smaller local.batch_size").holds
    assert refuses("the GPU ran out of memory").holds is False
    assert refuses("the GPU ran out of memory:\nuse a smaller local.batch_size").holds is False
    assert memory.refusal("a batch", lambda: None) == Finding("a batch", "trained", False)


def fails(device: Device) -> Iterator[Finding]:
    yield Finding("before", "1", True)
    raise ValueError("no such\nkernel")


def hangs(device: Device) -> Iterator[Finding]:
    yield Finding("before", "1", True)
    time.sleep(600)


@pytest.mark.takes("a process that loads PyTorch")
def test_an_error_of_a_section_is_one_of_its_findings() -> None:
    found = list(findings(fails, CPU, 60))
    assert found == [
        Finding("before", "1", True),
        Finding("ended with an error", "ValueError", False, "no such kernel"),
    ]


@pytest.mark.takes("a process that loads PyTorch")
def test_a_section_that_hangs_is_ended() -> None:
    *_, last = findings(hangs, CPU, 0.0)
    assert last == Finding("did not end in time", "0 s", False)


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main([]) == command.NO_GPU
    assert "sees no GPU here" in capsys.readouterr().err


def test_the_table_is_written_after_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, seen = tmp_path / "table.md", []

    def found(section: object, device: Device, seconds: float) -> Iterator[Finding]:
        yield Finding("a|b", "same", True, "abc")
        seen.append(file.read_text())
        yield Finding("c", "different", False)

    monkeypatch.setattr(command, "findings", found)
    arguments = ["--device", "cpu", "--only", "bits", "--markdown", str(file)]
    assert command.main(arguments) == 1, "a promise does not hold"
    assert "| bits | a\\|b | same | yes | abc |" in seen[0]
    assert "| bits | c | different | NO |  |" in file.read_text()
    assert "bits | c | different | NO" in capsys.readouterr().out


def test_mps_is_reported_as_missing() -> None:
    assert [finding.figure for finding in speed.mps(CPU)] == ["not checked"]
