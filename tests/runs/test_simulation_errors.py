"""Errors of `rayfl.run` for bad input, before anything starts, and for failed client updates, which name the client."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.errors import ClientError, DataError, RayflError, ResourceError, ScenarioError

PHASE: dict[str, Any] = {"name": "federated", "rounds": 2, "cohort": 2, "local": {"lr": 0.5, "batch_size": 8}}
RELAY: dict[str, Any] = {**PHASE, "name": "cyclic", "schedule": "relay"}
VECTORS: dict[str, Any] = {"name": "tests.user_code:vectors", "clients": 4}
PICTURES: dict[str, Any] = {"name": "tests.user_code:pictures"}


def failure(out: Path, kind: type[RayflError], overrides: Any = (), **more: Any) -> str:
    """The error of `rayfl.run` for a scenario with user-defined vectors and wrong additional keys or overrides."""
    tables = {"name": "spoilt", "data": VECTORS, "model": "tests.user_code:Linear", "phases": [PHASE], **more}
    with pytest.raises(kind) as caught:
        rayfl.run(tables, overrides=overrides, backend="inline", out=out, data_dir=out, console=Console(quiet=True))
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model=lenet", "unknown model 'lenet'; did you mean 'lenet5'"),
        ("data.name=femnits", "unknown data set 'femnits'; did you mean 'femnist'"),
        ("phases.0.algorithm=fedavgg", "unknown algorithm 'fedavgg'; did you mean 'fedavg' or"),
        ("data.partition=drichlet", "unknown partitioner 'drichlet'; did you mean 'dirichlet'"),
        ("data.augment=['flap']", "unknown augmentation 'flap'; did you mean 'flip'?"),
        ("model=tests.user_code:Linaer", "module 'tests.user_code' has no 'Linaer'; did you mean 'Linear'"),
        ("model=no_such_package:Net", "cannot import 'no_such_package:Net': No module named 'no_such_package'"),
        ("model.width=3", "model.width: not an option of 'model'"),
        ("data.options.row=3", "data.options.row: not an option of 'data.options'; did you mean 'rows'?"),
        ("model=tests.user_code:vectors", "model.name: 'tests.user_code:vectors' made a tuple, not a torch.nn.Module"),
        ("phases.0.cohort=5", "phases.federated.cohort: 5 clients per round, but there are 4"),
        (
            "phases.0.cohort={explicit=[[0], [1, 4]]}",
            "cohort: list 1 names client 4; clients are 0 to 3",
        ),
        ("phases.0.cohort={explicit=[[1, 1]]}", "phases.federated.cohort: list 0 names a client twice"),
        ("evaluation.per_client=true", "evaluation.per_client needs test samples by client"),
    ],
)
def test_errors_name_arguments_that_do_not_fit_the_scenario(override: str, message: str, tmp_path: Path) -> None:
    assert message in failure(tmp_path, ScenarioError, [override])


def test_augmentation_is_for_images(tmp_path: Path) -> None:
    message = failure(tmp_path, ScenarioError, ["data.augment=['flip']"])
    assert "data.augment.0: 'flip' is for images, [n, height, width, channels] uint8" in message


def test_normalization_is_for_images(tmp_path: Path) -> None:
    """Other inputs reach the network unchanged, so it would have no effect."""
    message = failure(tmp_path, ScenarioError, ["data.normalize={mean=[0.5, 0.5], std=[1, 1]}"])
    assert "data.normalize" in message
    assert "images" in message


def test_normalization_needs_a_value_for_every_channel(tmp_path: Path) -> None:
    data = {**PICTURES, "normalize": {"mean": [0.5, 0.5, 0.5], "std": [1, 1, 1]}}
    assert "data.normalize: 3 values, but inputs have 1 channels" in failure(tmp_path, ScenarioError, data=data)


def test_options_for_data_that_takes_none_are_rejected(tmp_path: Path) -> None:
    data = {"name": "tests.user_code:VECTORS", "clients": 4, "options": {"rows": 3}}
    assert "data.options" in failure(tmp_path, ScenarioError, data=data)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.clients=61", "data.clients: 61 clients cannot share 60 training rows; choose at most 60"),
        ("data.partition=natural", "data.partition: 'natural' needs data with natural clients"),
        ("data.name=tests.user_code:SHARD_SIZES", "neither a rayfl.data.Dataset nor arrays"),
        ("data.options.rows=0", "train is empty"),
    ],
)
def test_data_that_does_not_fit_is_told(override: str, message: str, tmp_path: Path) -> None:
    assert message in failure(tmp_path, DataError, [override])


def test_an_empty_shard_names_the_client(tmp_path: Path) -> None:
    message = failure(tmp_path, DataError, data={"name": "tests.user_code:pictures_with_a_client_without_any"})
    assert "client 1 has no training samples (1 of 3 clients are empty under partition 'natural')" in message
    assert "use fewer clients, or a partition with a minimum" in message


def test_more_clients_than_the_data_names_are_rejected(tmp_path: Path) -> None:
    message = failure(tmp_path, DataError, data=PICTURES | {"clients": 6})
    assert message == "data.clients: 6 were asked for, but pictures has 5"


def test_missing_files_are_named_and_how_to_get_them(tmp_path: Path) -> None:
    message = failure(tmp_path, DataError, data={"name": "fashion_mnist", "source": "files", "clients": 4})
    assert str(tmp_path / "FashionMNIST" / "raw") in message
    assert "python -m rayfl.data.download fashion_mnist" in message


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{part}-ubyte.gz").write_bytes(gzip.compress(b"\0\0\10\3" + bytes(100))[:-9])
    message = failure(tmp_path, DataError, data={"name": "fashion_mnist", "clients": 4})
    assert f"{raw / 'train-images-idx3-ubyte.gz'}: cannot be read, truncated or corrupt?" in message


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        (VECTORS, "lenet5", "model 'lenet5': takes images"),
        (
            VECTORS,
            "tests.user_code:SmallConvNet",
            "model 'tests.user_code:SmallConvNet' on tests.user_code:vectors: a batch",
        ),
        (PICTURES, "tests.user_code:OneLogitShort", "2 inputs give an output of shape [2, 2], not [2, 3]"),
    ],
)
def test_a_network_that_does_not_fit_the_data_is_told(
    data: dict[str, Any], model: str, message: str, tmp_path: Path
) -> None:
    assert message in failure(tmp_path, ScenarioError, data=data, model=model)


class Local:
    """A placeholder for a network of the test."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Local, f"model: give its import path, '{__name__}:Local', instead of the object itself"),
        ({"name": Local}, f"model: give its import path, '{__name__}:Local', instead of the object itself"),
        (
            lambda: Local(),
            "model: give its import path, 'package.module:object'; <lambda> has none, so define it in a module",
        ),
    ],
)
def test_a_class_in_place_of_its_name_is_rejected_with_its_path(model: Any, message: str, tmp_path: Path) -> None:
    assert message in failure(tmp_path, ScenarioError, model=model)


def test_arguments_without_an_effect_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"^address: has no effect without Ray"):
        rayfl.run("femnist_fedavg", backend="inline", address="auto", out=tmp_path)
    with pytest.raises(ScenarioError, match=r"^out: has no effect with folder"):
        rayfl.run("femnist_fedavg", backend="inline", out=tmp_path, folder=tmp_path / "run")
    with pytest.raises(ScenarioError, match=r"^out: has no effect with resume"):
        rayfl.run(backend="inline", out=tmp_path, resume=tmp_path / "run")
    with pytest.raises(ScenarioError, match=r"^address: has no effect without Ray"):
        rayfl.grid("cyclicfl_table_2", backend="inline", address="auto", out=tmp_path)
    assert not list(tmp_path.iterdir())


TABLES: dict[str, Any] = {"data": VECTORS, "model": "tests.user_code:Linear", "phases": [PHASE], "quick": {"seed": 9}}


@pytest.mark.parametrize(
    ("scenario", "arguments", "message"),
    [
        ([TABLES], {}, "scenario: must be a name, path, table or Scenario (got a list)"),
        (dict([*TABLES.items(), (1, 2)]), {}, "scenario 'scenario':\n1: unknown key; known: "),
        (TABLES, {"overrides": 3}, "overrides: 3 is not one; give {'phases.0.rounds': 10} or 'phases.0.rounds=10'"),
        (TABLES, {"overrides": [None]}, "overrides: None is not one; give {'phases.0.rounds': 10} or "),
        (TABLES, {"overrides": {1: 2}}, "overrides: (1, 2) is not one; give {'phases.0.rounds': 10} or "),
        (TABLES, {"quick": "no"}, "quick: must be True or False (got 'no')"),
        (TABLES, {"curves": "no"}, "curves: must be True or False (got 'no')"),
        (TABLES, {"centralise": "no"}, "centralise: must be True or False or keep_momentum (got 'no')"),
        (TABLES, {"minutes": "5"}, "minutes: must be a number above 0 and at most 10,000,000 (got '5')"),
        (None, {"resume": "run", "more": "1"}, "more: only works with resume, and must be a number of rounds above 0"),
    ],
)
def test_arguments_of_another_type_are_refused_by_name(
    scenario: Any, arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as caught:
        rayfl.run(scenario, backend="inline", out=tmp_path / "runs", data_dir=tmp_path, quiet=True, **arguments)
    assert str(caught.value).startswith(message)
    assert not list(tmp_path.rglob("scenario.toml"))


@pytest.mark.parametrize("key", ["numerics.tf32=true", "numerics.deterministic=false", "resources.device_cache_gb=2"])
def test_options_of_cuda_are_rejected_on_the_cpu(key: str, tmp_path: Path) -> None:
    name = key.partition("=")[0]
    message = f"{name}: has no effect on the CPU, where this would run; leave it out"
    assert failure(tmp_path, ScenarioError, [key]) == message


def test_an_unknown_backend_is_rejected(tmp_path: Path) -> None:
    tables = {"data": VECTORS, "model": "tests.user_code:Linear", "phases": [PHASE]}
    with pytest.raises(ScenarioError, match="backend: 'slurm' is neither 'ray' nor 'inline'"):
        rayfl.run(tables, backend="slurm", out=tmp_path)  # type: ignore[arg-type]


def test_an_output_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    message = failure(tmp_path / "file" / "runs", ResourceError)
    assert f"cannot write to the output folder '{tmp_path / 'file' / 'runs'}'" in message
    assert "--out" in message


def test_a_scenario_that_cannot_run_leaves_no_records(tmp_path: Path) -> None:
    failure(tmp_path, ScenarioError, ["model=lenet"])
    failure(tmp_path, DataError, ["data.clients=61"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("phase", [PHASE, RELAY], ids=["parallel", "relay"])
def test_a_client_whose_code_raises_is_told_with_the_traceback(phase: dict[str, Any], tmp_path: Path) -> None:
    phases = [{**phase, "cohort": {"explicit": [[3, 1]]}}]
    tables = {"data": VECTORS, "model": "tests.user_code:RaisesInTraining", "phases": phases}
    with pytest.raises(ClientError) as caught:
        rayfl.run(tables, backend="inline", out=tmp_path, console=Console(quiet=True))
    error = caught.value
    assert (error.host, error.phase, error.round) == (0, phase["name"], 1)
    assert error.client == 3 if phase is RELAY else error.client in (1, 3)
    message = str(error)
    assert message.startswith(f"client {error.client} on worker 0, phase '{phase['name']}', round 1: its code raised\n")
    traceback = message.splitlines()[1:]
    assert traceback[0] == "Traceback (most recent call last):"
    assert "site-packages/torch" in traceback[1] or "user_code.py" in traceback[1]  # no frames of rayfl's come first
    assert any("user_code.py" in line for line in traceback)
    assert "RuntimeError: the sensor is unplugged" in message


def test_the_round_of_a_failure_counts_through_the_whole_scenario(tmp_path: Path) -> None:
    second = {
        **PHASE,
        "name": "second",
        "cohort": {"explicit": [[2]]},
        "local": {"lr": 3e38, "batch_size": 4, "epochs": 2},
    }
    message = failure(tmp_path, ClientError, phases=[RELAY, second])
    assert message.startswith("client 2 on worker 0, phase 'second', round 3: ")


@pytest.mark.parametrize("phase", [PHASE, RELAY], ids=["parallel", "relay"])
def test_a_client_update_that_diverges_names_the_client_and_the_step(phase: dict[str, Any], tmp_path: Path) -> None:
    """15 samples in batches of 4, twice: the first steps move the parameters far away, and a later loss is NaN."""
    spoilt = {**phase, "cohort": {"explicit": [[2]]}, "local": {"lr": 3e38, "batch_size": 4, "epochs": 2}}
    message = failure(tmp_path, ClientError, phases=[spoilt])
    assert re.fullmatch(
        rf"client 2 on worker 0, phase '{phase['name']}', round 1: training diverged: the loss is (nan|inf) at step "
        "[2-8] of 8; a smaller lr or clip_norm may help",
        message,
    )
