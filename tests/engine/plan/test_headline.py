import json
from dataclasses import asdict

import pytest

from rayfl.config.execution import Evaluation
from rayfl.engine.plan.headline import Headline, headline_of, statistic_over_clients, unit_of, words_of
from rayfl.tasks.metrics.construction import build_metrics
from rayfl.tasks.supervised import Classification


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("client_test_rmse_lowest_20", "client test rmse worst 20 %"),
        ("client_test_accuracy_lowest_10", "client test accuracy worst 10 %"),
        ("test_macro_f1", "test macro f1"),
        ("client_test_auroc_clients", "client test auroc, number of clients"),
        ("test_lowest_score", "test lowest score"),
    ],
)
def test_columns_are_called_what_they_mean(column: str, words: str) -> None:
    assert words_of(column) == words


@pytest.mark.parametrize(
    ("column", "metric", "is_share", "symbol"),
    [
        ("test_accuracy", "loss", False, "%"),
        ("client_test_accuracy_variance_corrected", "loss", False, "%²"),
        ("test_mean_iou", "mean_iou", True, "%"),
        ("test_mean_iou", "loss", False, ""),
        ("test_loss", "accuracy", True, ""),
        ("client_test_accuracy_clients", "accuracy", True, ""),
        ("inaccuracy", "accuracy", True, ""),
        ("test_accuracy_gap", "accuracy", True, ""),
        ("test_own_accuracy", "own_accuracy", False, ""),
        ("test_explained_variance", "explained_variance", True, "%"),
        ("client_test_explained_variance_variance", "explained_variance", True, "%²"),
        ("bytes_up", "accuracy", True, "MB"),
    ],
)
def test_accuracies_and_a_headline_that_is_a_share_are_in_percent(
    column: str, metric: str, is_share: bool, symbol: str
) -> None:
    unit = unit_of(column, Headline(metric, higher_is_better=is_share, is_share=is_share))
    assert unit.symbol == symbol
    assert unit.factor == {"": 1, "%": 100, "%²": 1e4, "MB": 1e-6}[symbol]


def test_an_ending_is_a_statistic_where_the_number_of_clients_stands_beside_it() -> None:
    columns = ["test_dice_mean", "client_test_explained_variance_mean", "client_test_explained_variance_clients"]
    columns += ["test_accuracy_pooled_variance", "test_accuracy_pooled_clients", "test_explained_variance"]
    found = {column: ending[0] for column in columns if (ending := statistic_over_clients(column, columns))}
    assert found == dict(zip(columns[1:5], ("_mean", "_clients", "_variance", "_clients"), strict=True))


def test_every_metric_that_is_a_share_is_in_percent_whatever_ranks_the_rounds() -> None:
    evaluation = Evaluation.model_validate({"metrics": ["macro_f1", "accuracy"], "headline": "loss"})
    headline = headline_of(evaluation, build_metrics(evaluation.metrics, Classification(), 10, "evaluation.metrics"))
    assert headline.shares == ("macro_f1", "accuracy")
    assert headline.column_text("test_macro_f1", 0.7026) == "70.26 %"
    assert headline.column_text("client_test_macro_f1_variance", 0.002) == "20.00 %²"
    assert headline.column_text("test_loss", 0.7026) == "0.7026"
    assert Headline.from_record(json.loads(json.dumps(asdict(headline)))) == headline
