"""What deploy/ and CITATION.cff say is true of this checkout: names, versions, metrics and commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import rayfl
from rayfl.cli.run import main as run_scenario

CHECKOUT = Path(rayfl.__file__).parents[1]
DEPLOY = CHECKOUT / "deploy"


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((DEPLOY / "rayjob.yaml").read_text())
    return manifest


def containers(job: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The pod and the container of the head and of each group of workers."""
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        for container in pod["containers"]:
            yield pod, container


def test_the_jobs_command_runs(job: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    python, *command = shlex.split(job["spec"]["entrypoint"])
    assert (python, command[:2]) == ("python", ["-m", "rayfl.scenario"])
    assert command[3] == "--resume-or-start", "attempts within backoffLimit must not begin anew"
    assert job["spec"]["backoffLimit"] > 0
    assert run_scenario([*command[2:], "--show"]) == 0
    assert 'name = "femnist_cyclic"' in capsys.readouterr().out


def test_the_job_names_the_version_of_ray_that_the_image_gets(job: dict[str, Any]) -> None:
    pinned = re.search(r"^ray==(.+)$", (CHECKOUT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]


def test_runs_and_data_are_on_storage_that_every_pod_mounts(job: dict[str, Any]) -> None:
    seen = list(containers(job))
    assert len(seen) == 3
    for pod, container in seen:
        (claimed,) = [volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert f"--resume-or-start {mounts[claimed]}/runs/" in job["spec"]["entrypoint"]
        assert {"name": "RAYFL_DATA", "value": f"{mounts[claimed]}/data"} in container["env"]
        assert "/dev/shm" not in mounts.values(), "KubeRay mounts one that may grow to the container's memory"
        assert pod["securityContext"]["fsGroup"] == uid_of_the_image()


def test_the_autoscaler_adds_as_many_workers_as_the_run_asks_for(
    job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"]
    cpus, gpus = cluster["workerGroupSpecs"]
    assert all(group["minReplicas"] <= group["replicas"] < group["maxReplicas"] for group in (cpus, gpus))
    (each,) = (container["resources"]["limits"]["cpu"] for container in cpus["template"]["spec"]["containers"])
    run_scenario([*shlex.split(job["spec"]["entrypoint"])[3:], "--show"])
    hosts = tomllib.loads(capsys.readouterr().out)["resources"]["hosts"]
    assert hosts == {"min": 1, "max": cpus["maxReplicas"] * int(each)}
    assert gpus["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def uid_of_the_image() -> int:
    (made,) = re.findall(r"useradd .*?(?:-u|--uid)[ =](\d+)", (DEPLOY / "Dockerfile").read_text())
    return int(made)


def test_the_head_runs_no_worker_process(job: dict[str, Any]) -> None:
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}


def test_the_image_copies_all_that_the_package_is_built_from(tmp_path: Path) -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    for line in (line for line in lines if line.startswith("COPY ")):
        *sources, target = line.split()[1:]
        for source in sources:
            assert (CHECKOUT / source).exists(), source
            into = tmp_path / target / ("" if target == source else source)
            if (CHECKOUT / source).is_dir():
                shutil.copytree(CHECKOUT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(CHECKOUT / source, into)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_dashboard_asks_for_metrics_that_runs_report() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "rayfl.json").read_text())
    asked = json.dumps(dashboard)
    reported = set(re.findall(r'"(rayfl_[a-z_]+)"', (CHECKOUT / "rayfl/backends/ray/scheduler_actor.py").read_text()))
    counters = {"rayfl_rounds", "rayfl_client_updates", "rayfl_client_steps", "rayfl_protocol_bytes"}
    assert reported == counters | {"rayfl_train_loss"}
    assert set(re.findall(r"ray_(rayfl_[a-z_]+)_total\b", asked)) == counters
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert all(panel["targets"] and panel["description"] for panel in panels)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_citation_agrees_with_the_package() -> None:
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == rayfl.__version__
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]
    assert citation["repository-code"] == project["urls"]["Repository"]
    released = re.search(
        rf"^## \[{re.escape(rayfl.__version__)}\] - (.+)$", (CHECKOUT / "CHANGELOG.md").read_text(), re.M
    )
    assert released is not None
    assert str(citation["date-released"]) == released[1]
