"""What a run begins with: files, runs, published weights, and scenarios that are run first."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from rich.console import Console
from safetensors.torch import load_file

import rayfl
from rayfl.config.data import Data
from rayfl.config.loader import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore, build_store
from rayfl.engine.plan.network_trial import build_checked
from rayfl.errors import DataError, DivergenceError, RayflError, ScenarioError
from rayfl.runs.start_chain import starts_of
from rayfl.runs.weight_sources import from_file

NET = "tests.algorithms.scene:TanhNet"
PEOPLE: dict[str, Any] = {"name": "people", "data": {"name": "tests.algorithms.scene:people"}, "model": NET}
STILL = {"name": "still", "rounds": 1, "cohort": 2, "local": {"lr": 1e-30, "batch_size": 4}}
"""Trains nothing that float32 could hold."""
TRAINING = {"name": "training", "rounds": 1, "cohort": 3, "local": {"lr": 0.1, "batch_size": 4}}


def run(out: Path, **changes: Any) -> rayfl.Result:
    scenario = PEOPLE | {"phases": [STILL]} | changes
    return rayfl.run(scenario, backend="inline", out=out, starts=out / "starts", console=Console(quiet=True))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> rayfl.Result:
    return run(tmp_path_factory.mktemp("before"), phases=[TRAINING])


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in one if torch.equal(one[name], other[name])}


def test_a_safetensors_file_and_a_state_dict_of_pytorch_are_taken_whole(tmp_path: Path, trained: rayfl.Result) -> None:
    torch.save(trained.state_dict, tmp_path / "model.pt")
    for path in (trained.directory / "model.safetensors", tmp_path / "model.pt"):
        assert same(run(tmp_path, start={"file": str(path)}).state_dict, trained.state_dict) == set(trained.state_dict)


def test_a_run_is_where_another_goes_on_from_and_the_records_say_so(tmp_path: Path, trained: rayfl.Result) -> None:
    result = run(tmp_path, start={"run": str(trained.directory)})
    assert same(result.state_dict, trained.state_dict) == set(trained.state_dict)
    origin = json.loads((result.directory / "environment.json").read_text())["start"]
    assert (origin["kind"], origin["path"]) == ("run", str(trained.directory))
    assert origin["taken"] == list(trained.state_dict)
    assert len(origin["sha256"]) == 64


def test_a_fresh_head_and_ignored_names_stay_as_initialised_and_are_listed(
    tmp_path: Path, trained: rayfl.Result
) -> None:
    random = run(tmp_path).state_dict
    start = {"run": str(trained.directory), "head": "fresh", "ignore": ["first.bias"]}
    result = run(tmp_path, start=start)
    fresh = {"read_out.weight", "read_out.bias", "first.bias"}
    assert same(result.state_dict, trained.state_dict) == set(random) - fresh
    assert same(result.state_dict, random) == fresh
    origin = json.loads((result.directory / "environment.json").read_text())["start"]
    assert set(origin["fresh"]) == fresh


def test_a_body_moves_under_a_head_of_another_width(tmp_path: Path, trained: rayfl.Result) -> None:
    state = {name: tensor[:2] if name.startswith("read_out") else tensor for name, tensor in trained.state_dict.items()}
    torch.save(state, tmp_path / "two.pt")
    start = {"file": str(tmp_path / "two.pt"), "head": "fresh"}
    result = run(tmp_path, start=start)
    assert {"first.weight", "second.weight"} <= same(result.state_dict, trained.state_dict)
    with pytest.raises(DataError, match=r"'read_out.weight' has shape \(2, 5\), this model's has \(3, 5\)"):
        run(tmp_path, start=start | {"head": "keep"})


def test_published_weights_come_from_torchvisions_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = torchvision.models.squeezenet1_1()
    weights = torchvision.models.SqueezeNet1_1_Weights.IMAGENET1K_V1
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    folder = tmp_path / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(network.state_dict(), folder / weights.url.rpartition("/")[2])
    scenario = {
        "name": "published",
        "data": {"name": "tests.engine.test_initial_model:colours", "clients": 3},
        "model": {"name": "torchvision.models:squeezenet1_1", "num_classes": 3},
        "start": {"weights": "torchvision:SqueezeNet1_1_Weights.IMAGENET1K_V1", "ignore": ["classifier.1.*"]},
        "phases": [{**STILL, "local": {"steps": 1, "batch_size": 2, "lr": 1e-30}}],
    }
    state = rayfl.run(scenario, backend="inline", out=tmp_path, console=Console(quiet=True)).state_dict
    body = {name for name in state if not name.startswith("classifier")}
    assert body
    assert all(torch.equal(state[name], network.state_dict()[name]) for name in body)


FIRST = f"""
name = "first"
model = "{NET}"
phases = [{{ name = "training", rounds = 1, cohort = 3, local = {{ lr = 0.1, batch_size = 4 }} }}]
[data]
name = "tests.algorithms.scene:people"
"""


@pytest.fixture
def first(tmp_path: Path) -> str:
    path = tmp_path / "first.toml"
    path.write_text(FIRST)
    return str(path)


def kept(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "starts").iterdir() if path.is_dir())


def test_a_scenario_is_run_first_once_and_again_only_if_something_changed(
    tmp_path: Path, first: str, trained: rayfl.Result
) -> None:
    start = {"scenario": first}
    assert same(run(tmp_path, start=start).state_dict, trained.state_dict) == set(trained.state_dict)
    (folder,) = kept(tmp_path)
    before = (tmp_path / "starts" / folder / "model.safetensors").stat().st_mtime_ns
    run(tmp_path, start=start, seed=5)
    assert kept(tmp_path) == [folder]
    assert (tmp_path / "starts" / folder / "model.safetensors").stat().st_mtime_ns == before
    run(tmp_path, start=start | {"overrides": {"seed": 3}})
    assert len(kept(tmp_path)) == 2


def test_starts_form_chains(tmp_path: Path, first: str) -> None:
    second = tmp_path / "second.toml"
    second.write_text(FIRST.replace('"first"', '"second"') + f"[start]\nscenario = {json.dumps(first)}\n")
    result = run(tmp_path, start={"scenario": str(second)})
    assert [name.partition("-")[0] for name in kept(tmp_path)] == ["first", "second"]
    state = load_file(
        next(path for path in (tmp_path / "starts").glob("second-*") if path.is_dir()) / "model.safetensors"
    )
    assert same(result.state_dict, state) == set(state)


def test_equal_data_is_loaded_once_for_a_run_its_counterpart_and_its_chain_of_starts(
    tmp_path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def counted(data: Data, *arguments: Any) -> ShardStore:
        loaded.append(data.name)
        return build_store(data, *arguments)

    monkeypatch.setattr("rayfl.runs.preparation.build_store", counted)
    second = tmp_path / "second.toml"
    second.write_text(FIRST.replace('"first"', '"second"') + f"[start]\nscenario = {json.dumps(first)}\n")
    scenario = PEOPLE | {"phases": [STILL], "start": {"scenario": str(second)}}
    rayfl.run(scenario, backend="inline", out=tmp_path, starts=tmp_path / "starts", centralise=True,
              console=Console(quiet=True))  # fmt: skip
    assert len(kept(tmp_path)) == 2
    assert loaded == ["tests.algorithms.scene:people"]


def test_the_networks_of_a_start_that_has_run_are_not_built_again(
    tmp_path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second.toml"
    second.write_text(FIRST.replace('"first"', '"second"') + f"[start]\nscenario = {json.dumps(first)}\n")
    run(tmp_path, start={"scenario": str(second)})
    built: list[str] = []

    def counted(scenario: Scenario, *arguments: Any) -> object:
        built.append(scenario.name)
        return build_checked(scenario, *arguments)

    monkeypatch.setattr("rayfl.runs.preparation.build_checked", counted)
    run(tmp_path, start={"scenario": str(second)}, name="again")
    assert built == ["again"]
    with pytest.raises(DataError, match=rf"start.scenario '{re.escape(str(second))}'"):
        run(tmp_path, start={"scenario": str(second)}, model="tests.runs.test_initial_weights:Permuted")


def test_a_seed_reaches_the_start_of_a_start_unless_that_has_one_of_its_own(tmp_path: Path, first: str) -> None:
    own = {"free": "", "fixed": "overrides = { seed = 7 }\n"}
    for name, overrides in own.items():
        text = FIRST.replace('"first"', f'"{name}"') + f"[start]\nscenario = {json.dumps(first)}\n{overrides}"
        (tmp_path / f"{name}.toml").write_text(text)
        for seed in (3, 4):
            start = {"scenario": str(tmp_path / f"{name}.toml"), "overrides": {"seed": seed}}
            chain = starts_of(load_scenario(PEOPLE | {"phases": [STILL], "start": start}).start)
            assert [link.scenario.seed for link in chain] == [seed, seed if name == "free" else 7]


def test_two_that_start_at_once_run_it_once(tmp_path: Path, first: str) -> None:
    results: list[rayfl.Result] = []
    threads = [Thread(target=lambda: results.append(run(tmp_path, start={"scenario": first}))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert len(kept(tmp_path)) == 1


def test_a_start_that_was_stopped_is_run_again(tmp_path: Path, first: str) -> None:
    run(tmp_path, start={"scenario": first})
    (folder,) = (tmp_path / "starts" / name for name in kept(tmp_path))
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"status": "running"}))
    run(tmp_path, start={"scenario": first})
    assert json.loads((folder / "status.json").read_text())["status"] == "finished"


def test_a_start_that_diverged_is_not_run_again_until_its_folder_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "wild.toml"
    path.write_text(FIRST.replace("lr = 0.1", "lr = 3e38"))
    with pytest.raises(RayflError, match="client"):
        run(tmp_path, start={"scenario": str(path)})
    (folder,) = (tmp_path / "starts" / name for name in kept(tmp_path))
    before = (folder / "status.json").stat().st_mtime_ns
    with pytest.raises(DivergenceError) as caught:
        run(tmp_path, start={"scenario": str(path)})
    assert str(caught.value).startswith(f"start.scenario 'first': diverged in '{folder}' (client ")
    assert str(caught.value).endswith("remove that folder to run it again")
    assert (folder / "status.json").stat().st_mtime_ns == before


def test_the_digest_covers_the_users_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from tests.algorithms.scene import TanhNet\nclass Own(TanhNet):\n    pass\n"
    (tmp_path / "own_network.py").write_text(code)
    (tmp_path / "own.toml").write_text(FIRST.replace(NET, "own_network:Own"))
    monkeypatch.syspath_prepend(str(tmp_path))
    start = {"scenario": str(tmp_path / "own.toml")}
    run(tmp_path, start=start)
    (tmp_path / "own_network.py").write_text(code + "# changed\n")
    monkeypatch.delitem(sys.modules, "own_network")
    run(tmp_path, start=start)
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize(
    ("start", "complaint"),
    [
        ({}, "give exactly one of file, run, weights, scenario .given: none"),
        ({"file": "a", "run": "b"}, "exactly one of .* .given: file, run"),
        ({"file": "missing.safetensors"}, "start.file '/.*/missing.safetensors': No such file"),
        ({"file": __file__}, "neither a .safetensors file nor a state dict of tensors"),
        ({"file": "x.pt", "quick": True}, "quick has no effect without a scenario"),
        ({"run": "nowhere"}, "start.run '/.*/nowhere': is not the folder of a run"),
        ({"weights": "timm:x"}, "must read like 'torchvision:ResNet18_Weights"),
        ({"weights": "torchvision:Nothing.V1"}, "start.weights 'torchvision:Nothing.V1'"),
        ({"scenario": "no_such_scenario"}, "start.scenario: .*no_such_scenario"),
        ({"file": "x.pt", "haed": "fresh"}, "start.haed: unknown key; did you mean 'head'"),
    ],
)
def test_wrong_starts_are_named(start: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(RayflError, match=complaint):
        run(tmp_path, start=start)


def test_a_file_with_code_in_it_is_rejected_and_not_run(tmp_path: Path) -> None:
    torch.save({"model": Console}, tmp_path / "code.pt")
    with pytest.raises(DataError, match=r"nor a state dict of tensors only, written by torch\.save"):
        run(tmp_path, start={"file": str(tmp_path / "code.pt")})


def test_names_that_do_not_match_are_told_before_anything_is_run(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(FIRST.replace(f'"{NET}"', '{ name = "mlp", hidden = [4] }'))
    with pytest.raises(DataError, match=r"start.scenario .*: lacks 'first.bias'"):
        run(tmp_path, start={"scenario": str(tmp_path / "other.toml")})
    assert not (tmp_path / "starts").exists()


def test_a_wrappers_prefix_is_taken_off(tmp_path: Path, trained: rayfl.Result) -> None:
    wrapped = {f"a.b.{name}": value for name, value in trained.state_dict.items()}
    torch.save(wrapped, tmp_path / "wrapped.pt")
    start = {"file": str(tmp_path / "wrapped.pt")}
    with pytest.raises(DataError, match=r'start.rename = { "a.b." = "" } makes names agree'):
        run(tmp_path, start=start)
    result = run(tmp_path, start=start | {"rename": {"a.b.": ""}})
    assert same(result.state_dict, trained.state_dict) == set(trained.state_dict)


def test_a_prefix_is_put_before_and_rules_see_the_new_names(tmp_path: Path, trained: rayfl.Result) -> None:
    bare = {name.removeprefix("first."): value for name, value in trained.state_dict.items() if name[:6] == "first."}
    torch.save(bare, tmp_path / "bare.pt")
    start = {"file": str(tmp_path / "bare.pt"), "rename": {"": "first."}, "ignore": ["second.*", "read_out.*"]}
    result = run(tmp_path, start=start)
    assert same(result.state_dict, trained.state_dict) == {"first.weight", "first.bias"}
    with pytest.raises(DataError, match=r'start.rename = { "" = "first." } makes names agree'):
        run(tmp_path, start={key: value for key, value in start.items() if key != "rename"})


@pytest.mark.parametrize(
    ("rename", "complaint"),
    [
        ({"net.": ""}, r"rename: no name of start.file '.*' begins with 'net.'; names are 'first.bias'"),
        ({"first.": "second."}, r"rename: two tensors of start.file '.*' would have the name 'second.(weight|bias)'"),
    ],
)
def test_wrong_renames_are_named(rename: dict[str, str], complaint: str, tmp_path: Path, trained: rayfl.Result) -> None:
    path = trained.directory / "model.safetensors"
    with pytest.raises(ScenarioError, match=complaint):
        run(tmp_path, start={"file": str(path), "rename": rename})


def test_a_scenario_that_starts_from_itself_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "circle.toml"
    path.write_text(FIRST + f"[start]\nscenario = {json.dumps(str(path))}\n")
    with pytest.raises(ScenarioError, match="starts from itself"):
        run(tmp_path, start={"scenario": str(path)})


def test_names_with_dots_do_not_wait_for_each_other(tmp_path: Path) -> None:
    before = f"[start]\nscenario = {json.dumps(str(tmp_path / 'net.v1.toml'))}\n"
    for name, start in (("net.v1", ""), ("net.v2", before)):
        (tmp_path / f"{name}.toml").write_text(FIRST.replace('"first"', f'"{name}"') + start)
    run(tmp_path, start={"scenario": str(tmp_path / "net.v2.toml")})
    assert len(kept(tmp_path)) == 2


OWN_NET = """
import torch
from own_width import WIDTH

class Own(torch.nn.Linear):
    def __init__(self, num_classes: int) -> None:
        super().__init__(WIDTH, num_classes)
"""
OWN_DATA = """
import numpy as np

def made():
    x = np.load(__file__ + ".npy")
    y = np.arange(len(x)) % 3
    return x, y, x, y
"""
OWN = """
name = "own"
model = "own_net:Own"
phases = [{ name = "p", rounds = 1, cohort = 2 }]
[data]
name = "own_data:made"
clients = 3
"""


def test_the_digest_covers_data_without_files_and_constants_of_other_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("own_net.py", OWN_NET), ("own_data.py", OWN_DATA), ("own.toml", OWN)):
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {"data": {"name": "own_data:made", "clients": 3}, "model": "own_net:Own"}
    for width, value, starts in ((4, 0, 1), (4, 1, 2), (5, 1, 3)):
        # of another length, or Python would take the compiled file of the same second for this one
        (tmp_path / "own_width.py").write_text(f"WIDTH = {width}{'  #' * (width - 4)}\n")
        np.save(tmp_path / "own_data.py.npy", np.full((12, width), value, np.float32))
        for module in ("own_net", "own_width"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        run(tmp_path, start={"scenario": str(tmp_path / "own.toml")}, **own)
        assert len(kept(tmp_path)) == starts


class Permuted(torch.nn.Linear):
    """Its inputs are put in an order that is drawn when it is built."""

    perm: torch.Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__(4, num_classes)
        self.register_buffer("perm", torch.randperm(4))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input[:, self.perm])


def test_integers_are_taken_over_in_their_own_type(tmp_path: Path) -> None:
    model = {"model": f"{__name__}:Permuted"}
    trained = run(tmp_path, seed=1, **model)
    start = {"run": str(trained.directory)}
    order, other = trained.state_dict["perm"], run(tmp_path, seed=2, **model).state_dict["perm"]
    assert not torch.equal(order, other)
    assert torch.equal(run(tmp_path, seed=2, start=start, **model).state_dict["perm"], order)
    left_out = run(tmp_path, seed=2, start=start | {"ignore": ["perm"]}, **model)
    assert torch.equal(left_out.state_dict["perm"], other)


def test_a_file_that_can_be_read_without_end_is_rejected_by_its_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    for path in ("/dev/zero", str(tmp_path / "pipe.pt")):
        with pytest.raises(DataError, match=rf"^start\.file '{path}': is not a regular file; name one$"):
            from_file(Path(path))
