"""DistilBERT from transformers, with the sizes in a folder, trained and started like any other network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.models.text import DistilBert
from rayfl.runs.preparation import prepare
from tests.engine.scenes import run_on_hosts

transformers = pytest.importorskip("transformers", reason="rayfl[text] is not installed")

SMALL = {"n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 24, "vocab_size": 90, "max_position_embeddings": 32}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(1, 60, (4, 10), generator=torch.Generator().manual_seed(0))
    read = torch.arange(10) < torch.tensor([[10], [7], [3], [1]])
    return ids * read, read


def pre_trained(folder: Path) -> Any:
    """The folder of a small DistilBERT for masked words, as `save_pretrained` writes it, and the network."""
    network = transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**SMALL))
    network.save_pretrained(folder)
    return network


def test_outputs_are_those_of_transformers() -> None:
    network = DistilBert(3, config=SMALL).eval()
    theirs = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**SMALL, num_labels=3))
    theirs.load_state_dict(network.state_dict())
    ids, read = inputs()
    with torch.no_grad():
        torch.testing.assert_close(network(ids, read), theirs.eval()(ids, read.long()).logits)


def test_padding_changes_nothing() -> None:
    network = DistilBert(2, config=SMALL).eval()
    ids, read = inputs()
    with torch.no_grad():
        torch.testing.assert_close(network(ids, read)[2:3], network(ids[2:3, :3], read[2:3, :3]))


def test_the_network_declares_its_layers_and_has_the_papers_size() -> None:
    network = DistilBert(2, config=SMALL)
    network.check_declaration()
    assert network.ordered_modules[:3] == (
        "distilbert.embeddings",
        *(f"distilbert.transformer.layer.{n}" for n in (0, 1)),
    )
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in DistilBert().parameters()) == 66_955_010


def test_sizes_are_those_of_the_folder(tmp_path: Path) -> None:
    pre_trained(tmp_path)
    network = DistilBert(2, folder=tmp_path, config={"seq_classif_dropout": 0.5})
    assert network.distilbert.embeddings.word_embeddings.weight.shape == (90, 16)
    assert network.dropout.p == 0.5


def test_bad_folders_and_sizes_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"model\.folder: .* has no config\.json; use the folder of a DistilBERT"):
        DistilBert(2, folder=tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ScenarioError, match=r"model\.folder: .* has a 'bert', not a DistilBERT"):
        DistilBert(2, folder=tmp_path)
    with pytest.raises(ScenarioError, match=r"model\.config\.layers: is not in .*did you mean 'n_layers'"):
        DistilBert(2, config={"layers": 2})
    with pytest.raises(ScenarioError, match=r"model 'distilbert': its config is wrong \(.*n_heads"):
        DistilBert(2, config={**SMALL, "n_heads": 3})


def test_tokens_past_the_vocabulary_or_the_positions_are_rejected() -> None:
    network = DistilBert(2, config=SMALL)
    for ids, message in (
        (torch.full((1, 4), 90), "has a vocabulary of 90, but the data has token 90; use the same"),
        (torch.ones(1, 33, dtype=torch.int64), "takes 32 tokens, but the data has 33; shorten the texts"),
    ):
        with pytest.raises(ScenarioError, match=message):
            network(ids, torch.ones_like(ids, dtype=torch.bool))


def tables(**sections: Any) -> dict[str, Any]:
    local = {"optimizer": "adamw", "lr": 1e-3, "batch_size": 4}
    return {
        "data": {"name": "sent140", "source": "generated", "clients": 8, "options": {"length": 16}},
        "model": {"name": "distilbert", "config": SMALL},
        "phases": [{"name": "only", "rounds": 2, "cohort": 4, "train": "head", "local": local}],
        **sections,
    }


def test_a_start_takes_all_but_the_head_from_a_pre_trained_folder(tmp_path: Path) -> None:
    folder = tmp_path / "distilbert"
    theirs = pre_trained(folder).state_dict()
    ignore = ["vocab_*", "pre_classifier.*"]
    start = {"file": str(folder / "model.safetensors"), "head": "fresh", "ignore": ignore}
    given = tables(model={"name": "distilbert", "folder": str(folder)}, start=start)
    state = rayfl.run(given, backend="inline", out=tmp_path, data_dir=tmp_path, console=Console(quiet=True)).state_dict
    kept = {name for name in theirs if not name.startswith("vocab_")}
    assert set(state) - kept == {f"{layer}.{kind}" for layer in ("pre_classifier", "classifier") for kind in PARAMETERS}
    for name in kept:
        assert torch.equal(state[name], theirs[name]), name


PARAMETERS = ("weight", "bias")


def test_one_host_and_three_train_the_same_model() -> None:
    scenario = tables(numerics={"kernels": "plain"})
    scenario["phases"][0]["train"] = "all"
    job = prepare(Scenario.from_tables(scenario), Path())[0]
    one, three = (run_on_hosts(job, hosts)[0] for hosts in (1, 3))
    assert np.array_equal(one, three)
    assert not np.array_equal(one, job.result.initial.vector)
