"""kappa and the spread of gradients, against independent computation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from rayfl.studies.analysis.kernel import arc_cosine, kappa, unit_rows
from rayfl.studies.analysis.run_folder import RunFolder
from tests.algorithms.scene import people
from tests.studies.analysis.by_hand import tensors
from tests.studies.analysis.scene import analysed, build, opened


def test_the_kernel_is_the_expectation_over_random_neurons() -> None:
    rng = np.random.default_rng(0)
    x = unit_rows(rng.normal(size=(5, 3)))
    active = (x @ rng.normal(size=(3, 400_000))) >= 0
    drawn = x @ x.T * (active.astype(float) @ active.T.astype(float)) / active.shape[1]
    np.testing.assert_allclose(arc_cosine(x, x), drawn, atol=4e-3)
    np.testing.assert_allclose(np.diag(arc_cosine(x, x)), 0.5)


def test_kappa_of_a_set_with_itself_is_zero_and_relative_to_the_labels() -> None:
    rng = np.random.default_rng(1)
    x, y = unit_rows(rng.normal(size=(40, 30))), np.eye(4)[rng.integers(4, size=40)]
    assert kappa(x, y, x, y, ridge=0).kappa == pytest.approx(0, abs=1e-15)
    other, labels = unit_rows(rng.normal(size=(30, 30))), np.eye(4)[rng.integers(4, size=30)]
    found = kappa(x, y, other, labels, ridge=0)
    explained = arc_cosine(x, other).T @ np.linalg.inv(arc_cosine(x, x)) @ y
    assert found.kappa == pytest.approx(((labels - explained) ** 2).sum())
    assert found.relative == pytest.approx(found.kappa / 30)
    assert found.smallest_p == pytest.approx(np.linalg.eigvalsh(arc_cosine(x, x))[0])
    assert found.smallest_q == pytest.approx(np.linalg.eigvalsh(arc_cosine(other, other))[0])


def test_parallel_inputs_do_not_break_it() -> None:
    x = unit_rows(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
    assert np.isfinite(kappa(x, np.eye(3), x, np.eye(3)).kappa)


def test_chosen_clients_are_compared_with_all_and_with_permuted_labels(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("ntk", finished_run, finished_run, out=tmp_path, saved=True)
    assert [row["comparison"] for row in rows] == ["chosen clients", "permuted labels", "another set"]
    assert rows[2]["n_p"] == rows[2]["n_q"] == len(people().train)
    assert rows[2]["relative"] < 1e-3  # all against all
    assert 0 < rows[0]["n_p"] < rows[0]["n_q"]
    assert rows[0]["relative"] < rows[1]["relative"]


def test_kernels_that_do_not_fit_are_rejected_before_anything_is_loaded(finished_run: RunFolder) -> None:
    with pytest.raises(ScenarioError, match="samples: kernels of 20,001 samples do not fit; use at most 20,000"):
        build("ntk", samples=20_001).units([finished_run])


def test_gradients_spread_as_computed_by_hand(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("heterogeneity", finished_run, out=tmp_path, batch_size=4)
    assert [row["round"] for row in rows] == [0, 2, 6]
    run, data = opened(finished_run), people()
    shards = run.workload(0).store.train_shards
    for row in rows:
        held = tensors(run.vector(row["round"]), run.workload(0).initial.layout)
        means, around = [], []
        for client in range(len(shards)):
            x, y = data.train.x[shards[client]].astype(np.float64), data.train.y[shards[client]]
            each = np.stack([_gradient(held, x[i], y[i]) for i in range(len(y))])
            means.append(each.mean(axis=0))
            batches = [each[start : start + 4] for start in range(0, len(each), 4)]
            around.append(sum(len(b) * ((b.mean(0) - means[-1]) ** 2).sum() for b in batches) / len(each))
        mean = np.mean(means, axis=0)
        assert row["gradient_norm"] == pytest.approx(np.linalg.norm(mean), rel=1e-4)
        assert row["client_spread"] == pytest.approx(np.mean([((g - mean) ** 2).sum() for g in means]), rel=1e-4)
        assert row["batch_spread"] == pytest.approx(np.mean(around), rel=1e-4)


def _gradient(held: dict[str, np.ndarray], x: np.ndarray, y: int) -> np.ndarray:
    """Of the cross-entropy of one sample, by backpropagation written out."""
    first = np.tanh(held["first.weight"] @ x + held["first.bias"])
    second = np.tanh(held["second.weight"] @ first + held["second.bias"])
    logits = held["read_out.weight"] @ second + held["read_out.bias"]
    error = np.exp(logits - logits.max())
    error /= error.sum()
    error[y] -= 1
    to_second = (held["read_out.weight"].T @ error) * (1 - second**2)
    to_first = (held["second.weight"].T @ to_second) * (1 - first**2)
    parts = [np.outer(to_first, x), to_first, np.outer(to_second, first), to_second, np.outer(error, second), error]
    return np.concatenate([part.ravel() for part in parts])
