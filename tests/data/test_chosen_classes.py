"""`data.classes`: the chosen classes, the remaining data, and invalid choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayfl.config.data import Classes, Data
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.inputs import TextWindows
from rayfl.data.store import ShardStore, build_store
from rayfl.data.subsets import choose_classes, chosen_numbers, listed
from rayfl.errors import DataError, ScenarioError

HERE = "tests.data.test_chosen_classes"
CLASSES = 12
WRITERS = ("a", "b", "c", "d")


def whose(numbers: np.ndarray) -> np.ndarray:
    """A writer for each sample; "d" has only samples of the classes 0 to 2."""
    return np.where(numbers % CLASSES < 3, numbers // CLASSES % 4, numbers // CLASSES % 3)


def numbered() -> Dataset:
    """480 training samples, each its own number with class number % 12; writers, and another test set."""
    train, test, further = np.arange(480), np.arange(1000, 1096), np.arange(2000, 2024)
    parts = [Samples(part[:, None].astype(float), (part % CLASSES).astype(np.int32)) for part in (train, test, further)]
    shards = (Shards.by_owner(whose(part), 4) for part in (train, test))
    natural = NaturalClients(WRITERS, *shards)
    return Dataset("numbered", parts[0], parts[1], CLASSES, Provenance("arrays", ""), natural, {"further": parts[2]})


def rare() -> tuple[Any, ...]:
    """Class 2 has one training sample, class 3 none, and class 1 no test sample."""
    y = np.array([0] * 30 + [1] * 29 + [2])
    return np.arange(60.0)[:, None], y, np.arange(6.0)[:, None], np.array([0, 0, 2, 2, 3, 3])


def store(classes: dict[str, Any], seed: int = 3, **data: Any) -> ShardStore:
    tables = {"name": f"{HERE}:numbered", "partition": "iid", "clients": 4, **data, "classes": classes}
    return build_store(Data.model_validate(tables), seed, Path(), Path())


def originals(samples: Samples) -> np.ndarray:
    """The numbers of the samples, which determine their classes."""
    numbers: np.ndarray = np.asarray(samples.x)[:, 0].astype(int)
    return numbers


cuts = st.lists(st.integers(0, CLASSES), min_size=2, max_size=6, unique=True).map(sorted)


@given(cuts, st.integers(0, 30), st.integers(0, 30), st.data())
def test_labels_are_the_places_of_the_original_classes(cut: list[int], order: int, seed: int, data: Any) -> None:
    places = list(zip(cut[::2], cut[1::2], strict=False))
    number = sum(stop - start for start, stop in places)
    draw = data.draw(st.none() | st.integers(1, number))
    whole = numbered()
    config = Classes.model_validate({"places": places, "order_seed": order, "draw": draw})
    found = choose_classes(whole, config, seed)
    numbers = found.class_numbers
    assert numbers is not None
    assert len(numbers) == found.num_classes == (draw or number)
    assert numbers.tolist() == sorted(set(numbers.tolist()))
    for part, samples in found.parts.items():
        kept = originals(samples)
        np.testing.assert_array_equal(kept, [n for n in originals(whole.parts[part]) if n % CLASSES in numbers])
        np.testing.assert_array_equal(numbers[samples.y], kept % CLASSES)
        assert samples.y.dtype == np.int32


@given(st.integers(0, CLASSES), st.integers(0, 1000), st.integers(0, 1000), st.integers(1, CLASSES))
def test_classes_at_other_places_are_never_drawn(cut: int, order: int, seed: int, draw: int) -> None:
    sides = [(start, stop) for start, stop in ((0, cut), (cut, CLASSES)) if start < stop]
    found = []
    for place in sides:
        pool = chosen_numbers(Classes(places=(place,), order_seed=order), CLASSES, 0, "x")
        fewer = min(draw, place[1] - place[0])
        drawn = chosen_numbers(Classes(places=(place,), order_seed=order, draw=fewer), CLASSES, seed, "x")
        assert set(drawn) <= set(pool)
        assert len(set(drawn)) == fewer
        found.append(set(pool))
    assert sum(map(len, found)) == len(set().union(*found)) == CLASSES


def test_the_order_is_random_and_only_the_draw_changes_with_the_datas_seed() -> None:
    def numbers(order: int, seed: int, draw: int | None = None) -> list[int]:
        config = Classes(places=((80, 100),), order_seed=order, draw=draw)
        return [int(number) for number in chosen_numbers(config, 100, seed, "x")]

    assert numbers(0, 1) == numbers(0, 2) != numbers(1, 1)
    assert numbers(0, 1) != list(range(80, 100))
    assert len({tuple(numbers(0, seed, 5)) for seed in range(10)}) > 5
    drawn = [number for seed in range(200) for number in numbers(0, seed, 5)]
    counts = [drawn.count(number) for number in numbers(0, 0)]
    assert min(counts) > 20, "1000 draws, 50 expected of each"
    assert len(counts) == 20


@pytest.mark.parametrize("changed", [{"clients": 7}, {"partition": "natural", "clients": 2}, {"test_share": 0.3}])
def test_the_classes_do_not_depend_on_the_clients(changed: dict[str, Any]) -> None:
    classes = {"places": [[4, 12]], "draw": 3}
    plain, other = store(classes), store(classes, **changed)
    assert plain.chosen == other.chosen
    assert set(originals(plain.train) % CLASSES) == set(originals(other.train) % CLASSES)


def test_held_out_samples_have_only_the_chosen_classes() -> None:
    found = store({"places": [[0, 3]]}, test_share=0.2, validation_share=0.1, server_share=0.1)
    expected = {int(word) for word in chosen_numbers(Classes(places=((0, 3),)), CLASSES, 0, "x")}
    for name in ("train", "test", "validation", "client_test", "server", "further"):
        assert {int(number) % CLASSES for number in originals(found.samples(name))} == expected
    assert len(found.train) + sum(len(found.samples(n)) for n in ("validation", "client_test", "server")) == 120


def test_clients_keep_their_samples_and_clients_without_any_are_dropped() -> None:
    seen = set()
    for place in range(CLASSES):
        found = choose_classes(numbered(), Classes(places=((place, place + 1),)), 0)
        natural, numbers = found.natural, found.class_numbers
        assert natural is not None
        assert natural.test is not None
        assert numbers is not None
        assert natural.names == (WRITERS if numbers[0] < 3 else WRITERS[:3])
        for client, name in enumerate(natural.names):
            for part, shards in ((found.train, natural.train), (found.test, natural.test)):
                mine = originals(part)[shards[client]]
                expected = [number for number in originals(part) if WRITERS[whose(number)] == name]
                assert mine.tolist() == expected
        seen.add(int(numbers[0]))
    assert seen == set(range(CLASSES))


def test_the_summary_lists_them() -> None:
    found = store({"places": [[0, 2], [5, 7]]})
    numbers = chosen_numbers(Classes(places=((0, 2), (5, 7))), CLASSES, 0, "x")
    assert found.summary().endswith(f"4 classes; classes {listed(numbers)} of 12")


def test_numbers_are_listed_in_runs() -> None:
    assert listed(np.array([0, 1, 2, 5, 7, 8])) == "0-2, 5, 7-8"
    assert listed(np.array([4])) == "4"


def test_places_beyond_the_last_class_are_named() -> None:
    with pytest.raises(
        DataError, match=r"data\.classes\.places: the last range ends at 13, but numbered has 12 classes; choose at"
    ):
        store({"places": [[10, 13]]})


def test_labels_other_than_classes_raise() -> None:
    with pytest.raises(ScenarioError, match=r"data\.classes: needs class labels, but those of .*prices are float32\["):
        store({"places": [[0, 1]]}, name="tests.researcher:prices")


def test_symbols_of_a_text_raise() -> None:
    x = TextWindows(np.arange(9, dtype=np.uint8), np.arange(4), 5)
    samples = Samples(x, np.arange(4))
    dataset = Dataset("text", samples, samples, 4, Provenance("arrays", ""))
    with pytest.raises(ScenarioError, match=r"data\.classes: the labels of text are symbols of the text"):
        choose_classes(dataset, Classes(places=((0, 2),)), 0)


def test_a_set_without_samples_of_the_classes_is_named() -> None:
    order = _order_of(4)
    with pytest.raises(DataError, match=r"data\.classes: test of .*rare has no samples of class 1; choose"):
        store({"places": [[order.index(1), order.index(1) + 1]]}, name=f"{HERE}:rare")
    with pytest.raises(DataError, match=r"data\.classes: train of .*rare has no samples of class 3; choose"):
        store({"places": [[order.index(3), order.index(3) + 1]]}, name=f"{HERE}:rare")


def test_a_class_that_no_client_trains_on_is_named_by_its_original_number() -> None:
    order = _order_of(4)
    places = [[order.index(number), order.index(number) + 1] for number in (0, 3)]
    with pytest.raises(DataError, match=r"data\.classes: no client has training samples of class 3; choose other"):
        store({"places": places}, name=f"{HERE}:rare")


def test_too_many_clients_raise_and_the_message_names_the_chosen_classes() -> None:
    order = _order_of(CLASSES)
    place = order.index(8)
    with pytest.raises(DataError, match=r"data\.clients: 4 were asked for, but numbered \(class 8 of 12\) has 3"):
        store({"places": [[place, place + 1]]}, partition="natural", clients=4)


def _order_of(count: int) -> list[int]:
    """The classes by their places."""
    return [int(chosen_numbers(Classes(places=((p, p + 1),)), count, 0, "x")[0]) for p in range(count)]


def unowned() -> Dataset:
    """Class 1 has samples, but they belong to no client."""
    samples = Samples(np.zeros((8, 1)), np.arange(8) % 2)
    nobody = Shards.by_owner(np.zeros(0, np.int64), 1)
    shards = Shards(np.arange(0, 8, 2), np.array([0, 4]))
    return Dataset("unowned", samples, samples, 2, Provenance("arrays", ""), NaturalClients(("a",), shards, nobody))


def test_classes_without_a_client_are_named() -> None:
    place = _order_of(2).index(1)
    with pytest.raises(DataError, match=r"data\.classes: no client of unowned has training samples of class"):
        choose_classes(unowned(), Classes(places=((place, place + 1),)), 0)
