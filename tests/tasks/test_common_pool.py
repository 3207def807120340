"""Clients' accuracies on a common pool of test samples, weighted by their own classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rayfl.tasks.metrics.over_clients import LocalClasses, hits_by_class, pooled_accuracies

LOCAL = LocalClasses.count(np.array([0, 0, 0, 0, 2, 2, 2, 1]), np.array([1, 0, 1, 1, 3, 0, 3, 2]), 3)
"""Client 0: one of class 0, three of 1. Client 1: one of class 2. Client 2: one of class 0, two of 3."""


def test_samples_are_counted_by_client_and_class() -> None:
    counted = list(zip(LOCAL.client.tolist(), LOCAL.label.tolist(), LOCAL.number.tolist(), strict=True))
    assert counted == [(0, 0, 1), (0, 1, 3), (1, 2, 1), (2, 0, 1), (2, 3, 2)]


def test_hits_are_counted_by_the_samples_own_class() -> None:
    outputs = torch.eye(4)[[0, 1, 1, 2, 3, 3]]
    targets = torch.tensor([0, 1, 0, 2, 0, 3])
    assert hits_by_class(outputs, targets, 5).tolist() == [[1, 1, 1, 1, 0], [3, 1, 1, 1, 0]]


def test_each_class_weighs_as_much_as_the_client_has_of_it() -> None:
    found = pooled_accuracies(np.array([[5, 3, 1, 0], [10, 4, 8, 2]]), LOCAL)
    assert found.tolist() == pytest.approx([(0.5 + 3 * 0.75) / 4, 0.125, 0.5 / 3])


def test_classes_that_the_pool_lacks_are_left_out_of_a_clients_weights() -> None:
    found = pooled_accuracies(np.array([[5, 3, 0, 0], [10, 4, 0, 0]]), LOCAL)
    assert found[[0, 2]].tolist() == pytest.approx([(0.5 + 3 * 0.75) / 4, 0.5])
    assert np.isnan(found[1]), "the pool has none of its classes"
