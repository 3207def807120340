"""Checks of `rayfl doctor` on made-up facts: states and remedies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rayfl.__main__ import main
from rayfl.backends.ray.connection import token_from
from rayfl.cli.doctor import command
from rayfl.cli.doctor.check import GB, Check
from rayfl.cli.doctor.libraries import (
    EXTRAS,
    GpuFacts,
    Library,
    RayFacts,
    extra_checks,
    gpu_checks,
    library,
    library_checks,
    ray_checks,
    ray_library_check,
)
from rayfl.cli.doctor.machine import (
    MachineFacts,
    Space,
    data_checks,
    disk_checks,
    folder_size,
    machine_checks,
    memory_limit,
    space_at,
)

GOOD = MachineFacts(
    "Linux", "6.1", 8, int(64 * GB), None, ("glibc", "2.36"), (3, 12, 1), frozenset({"avx2", "avx512f", "amx_tile"})
)
RAY = RayFacts("", False, "", "", "", Path("/tmp/ray"), 0, 0)
TORCH, VISION, NEEDED = Library("2.9.0+cpu"), Library("0.24.0"), Requirement("torch==2.9.0")


def states(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def test_a_good_machine_has_no_warnings_and_no_remedies() -> None:
    checks = [*machine_checks(GOOD), *library_checks(TORCH, VISION, NEEDED), *ray_checks(RAY)]
    assert {check.state for check in checks} == {"ok"}
    assert not any(check.remedy for check in checks)


@pytest.mark.parametrize(
    ("change", "name", "state", "remedy"),
    [
        ({"system": "Darwin", "libc": ("", "")}, "system", "problem", "rayfl runs on Linux"),
        ({"python": (3, 10, 4)}, "Python", "problem", "under Python 3.11 to 3.14"),
        ({"python": (3, 15, 0)}, "Python", "problem", "under Python 3.11 to 3.14"),
        ({"libc": ("glibc", "2.17")}, "C library", "problem", "glibc 2.28 or newer"),
        ({"libc": ("", "")}, "C library", "problem", "need glibc"),
        ({"cores": 1}, "cores", "warning", "share the core"),
        ({"memory": int(2 * GB)}, "memory", "warning", "at least 4.0 GB"),
        ({"memory_limit": int(3 * GB)}, "memory", "warning", "at least 4.0 GB"),
        ({"cpu_flags": frozenset({"avx2"})}, "CPU features", "warning", "bits and speed differ"),
    ],
)
def test_a_machine_that_falls_short_is_told_what_to_do(
    change: dict[str, object], name: str, state: str, remedy: str
) -> None:
    (found,) = [check for check in machine_checks(replace(GOOD, **change)) if check.state != "ok"]  # type: ignore[arg-type]
    assert (found.name, found.state) == (name, state)
    assert remedy in found.remedy
    assert "\n" not in found.remedy


def test_a_limit_of_the_control_group_counts_where_it_is_smaller() -> None:
    def said(limit: int) -> str:
        return next(c.found for c in machine_checks(replace(GOOD, memory_limit=limit)) if c.name == "memory")

    assert said(int(8 * GB)) == "8.0 GB, the control group's limit, of 64.0 GB"
    assert said(int(80 * GB)) == "64.0 GB"


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", "max\n", None),
        ("memory.max", "1000\n", 1000),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("memory/memory.limit_in_bytes", "2000\n", 2000),
    ],
)
def test_control_groups_of_both_versions_are_read(file: str, text: str, limit: int | None, tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is None
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert memory_limit(tmp_path) == limit


def test_libraries_that_are_missing_broken_or_do_not_match_are_problems() -> None:
    def found(torch: Library, vision: Library) -> dict[str, str]:
        return states([*library_checks(torch, vision, NEEDED)])

    assert found(Library(""), VISION)["PyTorch"] == "problem"
    assert found(TORCH, Library("0.24.0", "RuntimeError: no nms"))["torchvision"] == "problem"
    assert found(Library("2.8.0"), VISION)["torch and torchvision"] == "problem"
    assert found(TORCH, VISION)["torch and torchvision"] == "ok"
    (wrong,) = [check for check in library_checks(Library("2.8.0"), VISION, NEEDED) if check.state == "problem"]
    assert wrong.remedy.startswith("torchvision 0.24.0 needs torch==2.9.0")


def test_a_library_that_is_not_installed_has_no_version() -> None:
    assert library("no-such-library-anywhere") == Library("")
    assert library("rich").error == ""


def test_a_gpu_that_pytorch_cannot_use_is_a_warning() -> None:
    assert states([*gpu_checks(GpuFacts("", None, ()))]) == {"CUDA": "ok"}
    (cpu_build,) = gpu_checks(GpuFacts("NVIDIA 550", None, ()))
    assert (cpu_build.state, "with CUDA" in cpu_build.remedy) == ("warning", True)
    (old_driver,) = gpu_checks(GpuFacts("NVIDIA 470", "12.8", ()))
    assert (old_driver.state, "driver for CUDA 12.8" in old_driver.remedy) == ("warning", True)
    usable, driver = gpu_checks(GpuFacts("NVIDIA 550", "12.8", (("H100", int(80 * GB)),)))
    assert (usable.found, driver.state) == ("H100, 80.0 GB, CUDA 12.8", "ok")


def test_ray_that_is_missing_or_broken_is_a_problem() -> None:
    assert ray_library_check(Library("")).state == "problem"
    assert ray_library_check(Library("2.60.0", "ImportError: x")).state == "problem"
    assert ray_library_check(Library("2.60.0")).state == "ok"


@pytest.mark.parametrize(
    ("change", "name", "state", "remedy"),
    [
        ({"address": "h:1", "named": True, "unreachable": "no answer: start one"}, "cluster", "problem", "start one"),
        ({"address": "h:1", "unreachable": "no answer: start one"}, "cluster", "warning", "`ray stop`"),
        ({"address": "h:1", "unreachable": "wants a token: set it"}, "cluster", "warning", "set it"),
        ({"auth_mode": "token"}, "token", "problem", "ray get-auth-token"),
        ({"sessions": 50}, "sessions", "warning", "rm -r /tmp/ray/session_*"),
        ({"sessions_size": int(9 * GB)}, "sessions", "warning", "rm -r /tmp/ray/session_*"),
    ],
)
def test_problems_with_ray_come_with_a_remedy(change: dict[str, object], name: str, state: str, remedy: str) -> None:
    (found,) = [check for check in ray_checks(replace(RAY, **change)) if check.state != "ok"]  # type: ignore[arg-type]
    assert (found.name, found.state) == (name, state)
    assert remedy in found.remedy


def test_an_address_that_cannot_be_joined_is_said_without_what_to_do_twice() -> None:
    unreachable = "no Ray cluster answers at h:1 ([Errno 111] Connection refused): check the address"
    check = next(ray_checks(replace(RAY, address="h:1", named=True, unreachable=unreachable)))
    assert check.found == "RAY_ADDRESS: no Ray cluster answers at h:1 ([Errno 111] Connection refused)"
    assert check.remedy == "check the address"


def test_a_token_is_located_and_never_shown(tmp_path: Path) -> None:
    assert token_from({}, tmp_path) == ""
    assert token_from({"RAY_AUTH_TOKEN": "s3cret"}, tmp_path) == "RAY_AUTH_TOKEN"
    assert token_from({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, tmp_path) == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("s3cret")
    assert token_from({}, tmp_path) == str(tmp_path / ".ray" / "auth_token")


def test_data_that_is_not_found_names_the_command_that_gets_it(tmp_path: Path) -> None:
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "femnist.parquet").touch()
    found = {check.name: check for check in data_checks(tmp_path, named=True)}
    assert found["FEMNIST"].found == f"found: {tmp_path / 'femnist' / 'femnist.parquet'}"
    assert found["FEMNIST"].remedy == ""
    assert found["CIFAR-10"].found == "not found; scenarios use a generated stand-in"
    assert found["CIFAR-10"].remedy.endswith(f"python -m rayfl.data.download cifar10 --data-dir {tmp_path}")
    assert "needed" in found["ImageNet-1K"].found
    missing = next(data_checks(tmp_path / "none", named=True))
    assert (missing.state, "RAYFL_DATA" in missing.remedy) == ("warning", True)
    assert next(data_checks(tmp_path / "none", named=False)).state == "ok"


def test_little_free_space_warns_and_almost_none_is_a_problem() -> None:
    def state(free: float) -> str:
        return next(disk_checks({"runs": (Path("/r"), Space(int(free), int(100 * GB)))}, None)).state

    assert [state(size * GB) for size in (50, 5, 4.9, 1, 0.9)] == ["ok", "ok", "warning", "warning", "problem"]
    (docker,) = disk_checks({}, Space(64 * 2**20, 64 * 2**20))
    assert (docker.state, "--shm-size" in docker.remedy) == ("warning", True)
    assert next(disk_checks({}, None)).state == "warning"


def test_space_is_that_of_the_nearest_folder_that_exists_and_sizes_add_up(tmp_path: Path) -> None:
    assert space_at(tmp_path / "not" / "yet").total == space_at(tmp_path).total
    (tmp_path / "inner").mkdir()
    (tmp_path / "a").write_bytes(bytes(10))
    (tmp_path / "inner" / "b").write_bytes(bytes(32))
    assert folder_size(tmp_path) == 42
    assert folder_size(tmp_path / "none") == 0


def test_extras_that_are_not_installed_name_their_command() -> None:
    found = {check.name: check for check in extra_checks({"mlflow"})}
    assert found.keys() == EXTRAS.keys()
    assert (found["mlflow"].remedy, found["text"].remedy) == ("", "to use it: pip install 'rayfl[text]'")


@pytest.mark.parametrize(("state", "status"), [("ok", 0), ("warning", 0), ("problem", 1)])
def test_the_exit_status_tells_problems_and_both_outputs_have_the_remedy(
    state: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [Check("disk", "runs", "0.5 GB", state, "free some")]  # type: ignore[arg-type]
    monkeypatch.setattr(command, "all_checks", lambda: iter(checks))
    assert main(["doctor"]) == status
    line, *_ = capsys.readouterr().out.splitlines()
    assert line.split()[0].lower() == state
    assert line.rstrip().endswith("disk: runs  0.5 GB; → free some")
    assert main(["doctor", "--json"]) == status
    assert json.loads(capsys.readouterr().out) == [
        {"group": "disk", "name": "runs", "found": "0.5 GB", "state": state, "remedy": "free some"}
    ]


def test_this_machine_is_checked_in_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "s3cret-token")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    main(["doctor", "--json"])
    said = capsys.readouterr().out
    assert {check["group"] for check in json.loads(said)} == {
        "machine", "libraries", "GPU", "Ray", "data", "disk", "extras"
    }  # fmt: skip
    assert "s3cret-token" not in said
