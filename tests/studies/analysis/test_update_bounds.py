"""The bounds of a sequence of client updates, against features written out and plain float64 algebra."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.errors import ScenarioError
from rayfl.studies.analysis.kernel import KernelSamples, arc_cosine, unit_rows, update_bounds
from rayfl.studies.analysis.run_folder import RunFolder
from tests.studies.analysis.scene import analysed, build

RIDGE, DELTA = 0.3, 0.1


def clients(*sizes: int) -> list[KernelSamples]:
    rng = np.random.default_rng(0)
    return [KernelSamples(unit_rows(rng.normal(size=(n, 20))), np.eye(3)[rng.integers(3, size=n)]) for n in sizes]


def features(made: list[KernelSamples]) -> list[np.ndarray]:
    """Of all samples, [n, sum of n], whose products are the kernel."""
    x = np.concatenate([client.x for client in made])
    values, vectors = np.linalg.eigh(arc_cosine(x, x))
    every = vectors * np.sqrt(np.maximum(values, 0))
    return np.split(every, np.cumsum([len(client.x) for client in made])[:-1])


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("sizes", [(6, 6, 6), (5, 8, 4)])
def test_bounds_are_those_of_ridge_regression_on_features(sizes: tuple[int, ...], orthogonal: bool) -> None:
    made = clients(*sizes)
    phi, found = features(made), update_bounds(made, RIDGE, orthogonal, DELTA, 2.0)
    weights, directions, steps, residuals, usable = np.zeros((sum(sizes), 3)), np.eye(sum(sizes)), [], [], []
    for client, of_client in zip(made, phi, strict=True):
        usable.append(of_client @ directions)
        residuals.append(client.y - of_client @ weights)
        gram = usable[-1].T @ usable[-1] + RIDGE * np.eye(sum(sizes))
        steps.append(np.linalg.solve(gram, usable[-1].T @ residuals[-1]))  # ridge regression by its normal equations
        weights = weights + steps[-1]
        if orthogonal:
            basis = np.linalg.svd(usable[-1], full_matrices=False)[2]
            directions = directions - basis.T @ basis
    kernels = [part @ part.T for part in usable]
    solved = [np.linalg.inv(k + RIDGE * np.eye(len(k))) @ r for k, r in zip(kernels, residuals, strict=True)]
    norms = [np.sum(r * s) for r, s in zip(residuals, solved, strict=True)]
    traces = [np.trace(k) for k in kernels]
    confidence = 3 * 2.0 * np.sqrt(np.log(2 / DELTA) / (2 * sizes[-1]))
    complexity = sum(np.sqrt(t * norm) / n for t, norm, n in zip(traces, norms, sizes, strict=True))
    seventh = sum(
        np.sqrt(RIDGE**2 * t / n**2) * RIDGE**2 / n * norm for t, norm, n in zip(traces, norms, sizes, strict=True)
    )
    tolerance = 1e-3 if orthogonal else 1e-9  # the projection is damped
    for tau, bound in enumerate(found):
        n = sizes[tau]
        moved = [phi[tau] @ steps[k] for k in range(tau + 1, len(sizes))]
        error = np.mean(np.sum((residuals[tau] - usable[tau] @ steps[tau]) ** 2, axis=1))
        forgetting = sum(np.sum(move**2) for move in moved) / n
        assert bound.smallest == pytest.approx(np.linalg.eigvalsh(kernels[tau])[0], rel=tolerance)
        assert bound.residual == pytest.approx(np.sum(residuals[tau] ** 2), rel=tolerance)
        assert bound.error == pytest.approx(error, rel=tolerance)
        assert bound.fit == pytest.approx(RIDGE**2 / n * norms[tau], rel=tolerance)
        assert bound.forgetting == pytest.approx(forgetting, rel=tolerance, abs=1e-6)
        assert bound.complexity_10 == pytest.approx(np.sqrt(traces[tau] / n**2) * norms[tau], rel=tolerance)
        assert bound.printed == pytest.approx(bound.fit + seventh + confidence, rel=tolerance)
        assert bound.corrected == pytest.approx(error + forgetting + complexity + confidence, rel=tolerance)
        if len(set(sizes)) == 1 and not orthogonal:
            h = sum(np.sum(solved[k] * (phi[k] @ phi[tau].T @ solved[k])) for k in range(tau + 1, len(sizes))) / n
            assert bound.forgetting_printed == pytest.approx(h, rel=1e-9)
    if orthogonal:
        assert max(bound.forgetting for bound in found) < 1e-6
    else:
        assert found[0].forgetting > 1e-3


def test_the_printed_factor_needs_clients_of_one_size() -> None:
    found = update_bounds(clients(5, 8, 4), RIDGE, orthogonal=False)
    assert np.isnan(found[0].forgetting_printed)
    assert found[-1].forgetting_printed == 0


def test_the_analysis_bounds_the_first_updates_of_a_run(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = [row for row in analysed("ntk", finished_run, out=tmp_path, updates=4) if row["update"] is not None]
    assert [(row["method"], row["update"]) for row in rows] == [(m, v) for m in ("SGD", "OGD") for v in range(1, 5)]
    assert all(row["corrected"] > 0 and row["n_p"] > 1 for row in rows)
    assert max(row["forgetting"] for row in rows[:3]) > max(row["forgetting"] for row in rows[4:])


def test_kernels_of_all_updates_must_fit_and_the_run_have_as_many(finished_run: RunFolder) -> None:
    with pytest.raises(ScenarioError, match="updates: kernels of 21,000 samples do not fit; use at most 20,000"):
        build("ntk", samples=7000, updates=3).units([finished_run])


def test_the_legend_lies_beside_the_bounds_and_not_on_them(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("ntk", finished_run, out=tmp_path, updates=3, samples=4, rounds=[3, 4])
    figure = build("ntk", updates=3, samples=4, rounds=[3, 4]).draw(rows, [finished_run])
    figure.draw_without_rendering()
    panel = figure.axes[1]
    legend, lines = panel.get_legend().get_window_extent(), panel.get_window_extent()
    assert not legend.overlaps(lines)
    assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width
