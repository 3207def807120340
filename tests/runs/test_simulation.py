"""`rayfl.run` on backend `inline`: its result, its files, and user-defined data, networks and algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import rayfl
from rayfl.config import load_scenario
from rayfl.engine.columns import METRICS
from rayfl.errors import ClientError
from rayfl.runs.result import Result
from rayfl.streams import torch_seed
from tests import user_code
from tests.user_code import MEAN, SHARD_SIZES, STD, Linear

PARALLEL: dict[str, Any] = {"name": "federated", "rounds": 2, "cohort": 2, "local": {"lr": 0.5, "batch_size": 8}}
RELAY: dict[str, Any] = {**PARALLEL, "name": "cyclic", "schedule": "relay"}


def tables(**more: Any) -> dict[str, Any]:
    """A scenario with user-defined vectors and network; every key can be replaced."""
    data = {"name": "tests.user_code:vectors", "clients": 4}
    return {"name": "tiny", "data": data, "model": "tests.user_code:Linear", "phases": [RELAY, PARALLEL], **more}


def run(out: Path, scenario: Any = None, **options: Any) -> Result:
    scenario = tables() if scenario is None else scenario
    return rayfl.run(scenario, backend="inline", out=out, console=Console(quiet=True), **options)


def assert_same_bits(one: Result, other: Result) -> None:
    assert list(one.state_dict) == list(other.state_dict)
    assert all(torch.equal(one.state_dict[name], other.state_dict[name]) for name in one.state_dict)


def initial_linear(seed: int = 0, inputs: tuple[int, ...] = (2,), classes: int = 2) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(seed, "initial"))
        return Linear(classes, inputs).state_dict()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of `tables()`."""
    return run(tmp_path_factory.mktemp("usual"))


def test_the_result_is_what_the_records_hold(usual: Result) -> None:
    result = usual
    assert result.directory.parent.name.startswith("usual")
    assert result.directory.name.startswith("tiny-")
    assert set(METRICS.names) <= set(result.metrics.schema.names)
    assert result.metrics["round"].to_pylist() == [1, 2, 3, 4]
    assert result.metrics["phase"].to_pylist() == ["cyclic"] * 2 + ["federated"] * 2
    assert result.metrics["round_in_phase"].to_pylist() == [1, 2, 1, 2]
    assert {name: tuple(value.shape) for name, value in result.state_dict.items()} == {
        "read_out.weight": (2, 2),
        "read_out.bias": (2,),
    }
    stored = load_file(result.directory / "model.safetensors")
    assert stored.keys() == result.state_dict.keys()
    assert all(torch.equal(stored[name], value) for name, value in result.state_dict.items())
    Linear(2, (2,)).load_state_dict(result.state_dict)


def test_a_run_may_be_given_its_own_folder(usual: Result, tmp_path: Path) -> None:
    result = rayfl.run(tables(), backend="inline", folder=tmp_path / "mine", console=Console(quiet=True))
    assert result.directory == tmp_path / "mine"
    assert (tmp_path / "mine" / "model.safetensors").is_file()
    assert_same_bits(result, usual)


def test_the_last_row_of_metrics_is_the_final_models_score(usual: Result) -> None:
    result = usual
    net = Linear(2, (2,))
    net.load_state_dict(result.state_dict)
    _, _, x, y = user_code.vectors()
    with torch.no_grad():
        logits = net(torch.from_numpy(x).float())
    last = result.metrics.to_pylist()[-1]
    assert last["test_accuracy"] == pytest.approx((logits.argmax(1).numpy() == y).mean())
    assert last["test_loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)).item())


def test_training_learns(tmp_path: Path) -> None:
    result = run(tmp_path, overrides={"phases.1.rounds": 30, "phases.1.cohort": 4})
    accuracy = result.metrics["test_accuracy"].to_pylist()
    assert accuracy[-1] >= 0.95 > accuracy[0]


def test_the_same_scenario_gives_the_same_bits_and_another_seed_others(usual: Result, tmp_path: Path) -> None:
    assert_same_bits(usual, run(tmp_path))
    other = run(tmp_path, overrides=["seed=1"])
    assert not torch.equal(usual.state_dict["read_out.weight"], other.state_dict["read_out.weight"])


def test_the_resolved_scenario_in_the_records_runs_again_to_the_same_bits(tmp_path: Path) -> None:
    first = run(tmp_path, overrides={"phases.0.local.lr_decay": 0.9})
    again = run(tmp_path, first.directory / "scenario.toml")
    assert again.scenario == first.scenario == load_scenario(first.directory / "scenario.toml")
    assert_same_bits(first, again)


def test_a_scenario_may_be_a_table_a_scenario_or_a_path(usual: Result, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(load_scenario(tables()).to_toml())
    for given in (load_scenario(tables()), str(tmp_path / "tiny.toml")):
        other = run(tmp_path / "runs", given)
        assert other.scenario == usual.scenario
        assert_same_bits(usual, other)


def test_overrides_are_a_table_or_texts(tmp_path: Path) -> None:
    one = run(tmp_path, overrides={"phases.0.rounds": 1, "seed": 4})
    other = run(tmp_path, overrides=["phases.0.rounds=1", "seed=4"])
    assert one.metrics.num_rows == 3
    assert one.scenario == other.scenario
    assert_same_bits(one, other)


def test_quick_is_for_a_first_look(tmp_path: Path) -> None:
    result = run(tmp_path, tables(quick={"phases.0.rounds": 1, "phases.1.rounds": 1}), quick=True)
    assert result.metrics.num_rows == 2


def test_evaluation_happens_every_so_many_rounds_and_at_the_end_of_phases(tmp_path: Path) -> None:
    phases = [{**RELAY, "rounds": 5}, {**PARALLEL, "rounds": 4}]
    result = run(tmp_path, tables(phases=phases, evaluation={"every": 3}))
    assert result.metrics["round"].to_pylist() == [3, 5, 6, 9]


def test_evaluation_does_not_depend_on_the_batch_size(usual: Result, tmp_path: Path) -> None:
    whole = usual.metrics
    pieces = run(tmp_path, overrides={"evaluation.batch_size": 7}).metrics
    np.testing.assert_allclose(whole["test_loss"], pieces["test_loss"], rtol=1e-6)
    assert whole["test_accuracy"] == pieces["test_accuracy"]


@pytest.mark.parametrize(
    "data",
    [
        {"name": "tests.user_code:VECTORS", "clients": 4},
        {"name": "tests.user_code:vectors", "clients": 4, "options": {"rows": 60}},
    ],
)
def test_data_may_be_arrays_or_a_callable_with_options(data: dict[str, Any], usual: Result, tmp_path: Path) -> None:
    assert_same_bits(usual, run(tmp_path, tables(data=data)))


def test_data_may_be_a_dataset_that_comes_with_clients(tmp_path: Path) -> None:
    phase = {**PARALLEL, "rounds": 1, "cohort": 1.0}
    result = run(tmp_path, tables(data={"name": "tests.user_code:pictures"}, phases=[phase]))
    assert result.metrics["transfers"].to_pylist() == [2 * len(SHARD_SIZES)]


def test_clients_are_scored_each_on_their_own_test_examples(tmp_path: Path) -> None:
    more = {"data": {"name": "tests.user_code:pictures"}, "evaluation": {"every": 2, "per_client": True}}
    result = run(tmp_path, tables(**more))
    scores = pq.read_table(result.directory / "clients.parquet").to_pylist()
    assert [(row["round"], row["client"]) for row in scores] == [(r, c) for r in (2, 4) for c in range(5)]
    assert {row["samples"] for row in scores} == {2}

    data, net = user_code.pictures(), Linear(3, (6, 6, 1))
    net.load_state_dict(result.state_dict)
    for row in scores[5:]:
        mine = slice(2 * row["client"], 2 * row["client"] + 2)
        x, y = torch.from_numpy(data.test.x[mine]).float() / 255, torch.from_numpy(data.test.y[mine])
        with torch.no_grad():
            logits = net(x)
        assert row["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, y).item(), rel=1e-5)
        assert row["accuracy"] == (logits.argmax(1) == y).float().mean().item()
    whole = result.metrics.to_pylist()[-1]
    assert whole["test_loss"] == pytest.approx(np.mean([row["loss"] for row in scores[5:]]))


def test_scores_per_client_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, tables(data={"name": "tests.user_code:pictures"}))
    assert not (result.directory / "clients.parquet").exists()


def test_a_part_of_the_datas_own_clients_can_be_drawn(tmp_path: Path) -> None:
    more = {"data": {"name": "tests.user_code:pictures", "clients": 3}, "evaluation": {"per_client": True}}
    result = run(tmp_path, tables(**more))
    assert set(pq.read_table(result.directory / "clients.parquet")["client"].to_pylist()) == {0, 1, 2}


def test_a_users_network_starts_from_the_scenarios_seed(tmp_path: Path) -> None:
    """With a learning rate that rounds to zero the final model is the initial one."""
    still = {**PARALLEL, "rounds": 1, "local": {"lr": 1e-30}}
    result = run(tmp_path, tables(seed=11, phases=[still]))
    expected = initial_linear(seed=11)
    assert all(torch.equal(result.state_dict[name], value) for name, value in expected.items())


def test_options_of_a_users_network_are_passed(tmp_path: Path) -> None:
    model = {"name": "tests.user_code:SmallConvNet", "channels": 2}
    result = run(tmp_path, tables(data={"name": "tests.user_code:pictures"}, model=model))
    assert result.state_dict["layers.0.weight"].shape == (2, 1, 3, 3)


def test_a_users_algorithm_runs_with_its_options(tmp_path: Path) -> None:
    """A server that goes half the way of FedAvg ends half-way between the initial model and FedAvg's."""
    one_round = {**PARALLEL, "rounds": 1}
    cautious = {**one_round, "algorithm": {"name": "tests.user_code:CautiousServer", "server_lr": 0.5}}
    fedavg = run(tmp_path, tables(phases=[one_round])).state_dict
    half = run(tmp_path, tables(phases=[cautious]))
    for name, initial in initial_linear().items():
        torch.testing.assert_close(half.state_dict[name], (initial + fedavg[name]) / 2)
    assert half.scenario.phases[0].algorithm.options == {
        "server_lr": 0.5,
        "weighting": "samples",
        "buffers": "average",
        "penalties": [],
        "server_optimizer": {"name": "sgd", "lr": 1.0},
        "aggregation": {"name": "mean"},
    }


def test_normalization_subtracts_the_mean_and_divides_by_the_deviation(tmp_path: Path) -> None:
    grey = {"name": "tests.user_code:grey_levels", "clients": 4, "normalize": {"mean": [MEAN], "std": [STD]}}
    by_hand = {"name": "tests.user_code:grey_levels_normalized_by_hand", "clients": 4}
    one, other = run(tmp_path, tables(data=grey)), run(tmp_path, tables(data=by_hand))
    for name, value in one.state_dict.items():
        torch.testing.assert_close(value, other.state_dict[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.metrics["test_loss"], other.metrics["test_loss"], rtol=1e-5)


def test_augmentation_changes_training_and_leaves_testing_alone(tmp_path: Path) -> None:
    grey = {"name": "tests.user_code:grey_levels", "clients": 4}
    flipped = {**grey, "augment": [{"name": "flip", "probability": 1.0}]}
    plain, mirrored = run(tmp_path, tables(data=grey)), run(tmp_path, tables(data=flipped))
    assert not torch.equal(plain.state_dict["read_out.weight"], mirrored.state_dict["read_out.weight"])

    still = [{**PARALLEL, "rounds": 1, "local": {"lr": 1e-30}}]
    scores = [run(tmp_path, tables(data=data, phases=still)).metrics["test_loss"] for data in (grey, flipped)]
    assert scores[0] == scores[1]


def test_the_callers_random_state_and_threads_are_left_alone(tmp_path: Path) -> None:
    np.random.seed(99)  # noqa: NPY002 - the global state is what the test is about
    torch.manual_seed(99)
    torch.set_num_threads(2)
    try:
        state = torch.get_rng_state()
        run(tmp_path, overrides={"numerics.threads": 1})
        with pytest.raises(ClientError):
            run(tmp_path, tables(model="tests.user_code:RaisesInTraining"))
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == 2
        assert np.random.random() == np.random.RandomState(99).random()  # noqa: NPY002
    finally:
        torch.set_num_threads(1)


def test_the_callers_random_state_does_not_matter(usual: Result, tmp_path: Path) -> None:
    torch.manual_seed(2)
    torch.rand(1)
    assert_same_bits(usual, run(tmp_path))


def test_progress_says_which_data_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rayfl.run(tables(phases=[PARALLEL | {"rounds": 1}]), backend="inline", out=tmp_path)
    said = capsys.readouterr().out
    assert "data     tests.user_code:vectors, from arrays in memory: 4 clients with 15 to 15 training samples" in said
    assert "4 clients with 15 to 15 training samples" in said
