"""Items of a Dataset are read when a batch needs them, with the same results as arrays in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.tensors import SampleReader
from rayfl.data.torch_rows import TorchPieces, TorchRows
from rayfl.engine.host import Host
from rayfl.errors import ClientError, DataError, ScenarioError
from rayfl.runs.preparation import prepare
from tests.data.torch_datasets.scene import (
    HERE,
    LABELS,
    PIXELS,
    RETURNED,
    TEST,
    TEXTS,
    VECTORS,
    Items,
    N,
    WithTargets,
    store,
    vector,
)
from tests.engine.scenes import run_on_hosts

CPU = torch.device("cpu")


def image(row: int) -> Any:
    return Image.fromarray(PIXELS[row]), int(LABELS[row])


def tensor_of_pixels(row: int) -> Any:
    return torch.from_numpy(PIXELS[row]).permute(2, 0, 1), torch.tensor(LABELS[row])


def grey(row: int) -> Any:
    return Image.fromarray(PIXELS[row, :, :, 0]), LABELS[row]


def number(row: int) -> Any:
    return float(VECTORS[row, 0]), LABELS[row]


def by_name(row: int) -> Any:
    return {"pixels": PIXELS[row].astype(np.float32), "age": row}, LABELS[row]


def both(item: Callable[[int], Any]) -> dict[str, Any]:
    return {"train": Items(item), "test": Items(item, TEST.stop)}


@pytest.mark.parametrize(
    ("item", "plain"),
    [
        (image, PIXELS),
        (tensor_of_pixels, PIXELS),
        (grey, PIXELS[..., :1]),
        (vector, VECTORS),
        (number, VECTORS[:, 0].astype(np.float64)),
        (by_name, {"pixels": PIXELS.astype(np.float32), "age": np.arange(N)}),
    ],
)
def test_batches_equal_those_of_the_same_arrays(item: Callable[[int], Any], plain: Any, tmp_path: Path) -> None:
    def cut(x: Any) -> Any:
        return {name: values[TEST] for name, values in x.items()} if isinstance(x, dict) else x[TEST]

    arrays = plain, LABELS, cut(plain), LABELS[TEST]
    data = {"clients": 3, "validation_share": 0.2, "partition": "shards"}
    stores = [store(given, tmp_path, **data) for given in (both(item), arrays)]
    order = np.array([7, 3, 20, 0])
    for name in ("train", "test", "validation"):
        (x, y), (plain_x, plain_y) = (BatchSource(one, CPU).batch(name, order % 6) for one in stores)
        assert torch.equal(y, plain_y)
        named = (x, plain_x) if isinstance(x, dict) else ({"": x}, {"": plain_x})
        assert all(torch.equal(named[0][key], named[1][key]) for key in named[1])
    assert stores[0].num_classes == 3


def test_only_tried_items_are_read_before_a_batch_needs_them(tmp_path: Path) -> None:
    sets = {"train": WithTargets(vector), "test": WithTargets(vector, TEST.stop)}
    found = store(sets, tmp_path, clients=4)
    assert isinstance(found.train.x, TorchRows)
    assert len(sets["train"].reads) == 16
    sets["train"].reads.clear()
    rows = np.array([5, 1, 30])
    source = BatchSource(found, CPU)
    list(source.training_batches(rows, 3, None))
    assert dict(sets["train"].reads) == {int(row): 1 for row in found.train.x.rows[rows]}


def test_inputs_by_name_are_read_once_for_all_names(tmp_path: Path) -> None:
    sets = both(by_name)
    found = store(sets, tmp_path, clients=4)
    sets["train"].reads.clear()
    reader = SampleReader(found.train, CPU)
    reader.fetch(np.array([3, 9]))
    assert sets["train"].reads == {3: 1, 9: 1}


def test_inputs_that_differ_in_length_are_collated_like_arrays(tmp_path: Path) -> None:
    def text(row: int) -> Any:
        return torch.from_numpy(TEXTS[row]), LABELS[row]

    data = {"clients": 3, "collate": "pad"}
    arrays = TEXTS, LABELS, TEXTS[TEST], LABELS[TEST]
    lazy, plain = (BatchSource(store(given, tmp_path, **data), CPU) for given in (both(text), arrays))
    assert isinstance(store(both(text), tmp_path, **data).train.x, TorchPieces)
    for x, expected in zip(lazy.batch("train", np.arange(9)), plain.batch("train", np.arange(9)), strict=True):
        assert torch.equal(x, expected)


def test_float_images_of_a_dataset_are_recognised(tmp_path: Path) -> None:
    def scaled(row: int) -> Any:
        return torch.from_numpy(PIXELS[row]).permute(2, 0, 1) / 255, LABELS[row]

    with pytest.raises(ScenarioError, match=r"images \[n, channels, height, width\]: give uint8 .* without ToTensor\)"):
        store(both(scaled), tmp_path, clients=3, augment=["flip"])


def test_pixels_of_a_dataset_with_channels_first_are_no_images_of_many_channels(tmp_path: Path) -> None:
    with pytest.raises(
        ScenarioError, match=r"images \[n, channels, height, width\]: give x\.transpose\(1, 2, 0\) \(from"
    ):
        store(both(lambda row: (PIXELS[row].transpose(2, 0, 1), LABELS[row])), tmp_path, clients=3)


def test_a_host_receives_the_call_and_creates_the_datasets_itself(tmp_path: Path) -> None:
    found = store({"train": Items(vector), "test": Items(vector, TEST.stop)}, tmp_path, clients=4)
    sent = pickle.dumps(found.train.x)  # the items are closures' and could not be pickled
    assert len(sent) < found.train.x.rows.nbytes + 3000
    assert "reads" not in repr(sent)
    received = pickle.loads(sent)  # noqa: S301 - as Ray does between its own processes
    np.testing.assert_array_equal(received[:], VECTORS)
    RETURNED["it"] = {"train": Items(vector, 7), "test": Items(vector, TEST.stop)}
    with pytest.raises(DataError, match="train has 7 items here, but 40 where the run started; make it read the same"):
        pickle.loads(sent)[:1]  # noqa: S301


def shuffled(number: int = N) -> dict[str, Any]:
    """A random split whose generator has no seed: other items with every call."""
    order = np.random.default_rng().permutation(N)[:number]
    return {"train": Subset(Items(vector), order.tolist()), "test": Items(vector, TEST.stop)}


def in_the_order_of_the_process() -> dict[str, Any]:
    """As files in the order of a set of names, which differs between processes: here, between calls."""
    FORWARD.append(1)
    order = range(N) if len(FORWARD) % 2 else range(N)[::-1]
    return {"train": Subset(WithTargets(vector), order), "test": Items(vector, TEST.stop)}


def relabelled() -> dict[str, Any]:
    """The same inputs; but an item that is not tried has another label with every call."""
    FORWARD.append(1)
    train = WithTargets(vector)
    train.targets[1] = len(FORWARD) % 2
    return {"train": train, "test": Items(vector, TEST.stop)}


def last_label_moves() -> dict[str, Any]:
    FORWARD.append(1)
    label = len(FORWARD) % 2
    return {"train": Items(lambda row: (VECTORS[row], label if row == N - 1 else row % 3)), "test": Items(vector, 9)}


def with_another_test_set() -> dict[str, Any]:
    return {"train": (VECTORS, LABELS), "test": (VECTORS, LABELS), "far": shuffled()["train"]}


FORWARD: list[int] = []


@pytest.mark.parametrize(
    ("source", "moved"),
    [
        (shuffled, "train"),
        (in_the_order_of_the_process, "train"),
        (relabelled, "train"),
        (last_label_moves, "train"),
        (with_another_test_set, "far"),
    ],
)
def test_a_worker_that_gets_other_items_or_labels_from_the_source_ends_before_it_trains(
    source: Any, moved: str, tmp_path: Path
) -> None:
    FORWARD.clear()
    RETURNED["it"] = source
    job, _ = prepare(Scenario.from_tables(run_tables()), tmp_path)
    job.workloads[0].store.reopen()  # in the process that called the source, nothing is read again
    sent = pickle.loads(pickle.dumps(job.workloads))  # noqa: S301 - as Ray does between its own processes
    with pytest.raises(DataError, match=r"seed the generators .* and sort the files") as caught:
        Host(0, replace(job, workloads=sent))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"data.name: '{HERE}:source': {moved} has other items or labels here than")


def test_a_worker_reads_the_tried_items_once_to_compare_them(tmp_path: Path) -> None:
    sets = both(by_name)
    sent = pickle.dumps(store(sets, tmp_path, clients=4))
    for one in sets.values():
        one.reads.clear()
    pickle.loads(sent).reopen()  # noqa: S301
    assert {part: one.reads.total() for part, one in sets.items()} == {"train": 16, "test": TEST.stop}
    assert sets["train"].reads[N - 1] == 1


def rounded_as_on(machine: int) -> dict[str, Any]:
    """Inputs and labels that a transform computes, whose last bits depend on the machine."""
    one = np.float32(1 + machine * 2**-22)

    def item(row: int) -> Any:
        return {"a": np.float16(VECTORS[row]), "b": VECTORS[row, :2] * one}, VECTORS[row] * one

    train = WithTargets(item)
    train.targets = [values * one for values in VECTORS]
    return {"train": train, "test": Items(item, TEST.stop)}


def received_where_the_source_returns(there: Any, tmp_path: Path) -> None:
    sent = pickle.dumps(store(rounded_as_on(0), tmp_path, clients=3))
    RETURNED["it"] = there
    pickle.loads(sent).reopen()  # noqa: S301


def test_a_worker_accepts_items_and_labels_that_its_cpu_rounds_in_another_way(tmp_path: Path) -> None:
    received_where_the_source_returns(rounded_as_on(1), tmp_path)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_worker_refuses_one_tried_input_of_floats_that_is_not_merely_rounded(part: str, tmp_path: Path) -> None:
    there = rounded_as_on(1)
    item = there[part].item

    def moved(row: int) -> Any:
        x, y = item(row)
        return x | {"b": x["b"] * np.float32(1.002 if row == 0 else 1)}, y

    there[part].item = moved
    with pytest.raises(DataError, match=f"{part} has other items or labels here than where the run started"):
        received_where_the_source_returns(there, tmp_path)


def test_tried_items_are_read_under_one_thread_since_bits_of_transforms_depend_on_it(tmp_path: Path) -> None:
    threads = []

    def item(row: int) -> Any:
        threads.append(torch.get_num_threads())
        return vector(row)

    torch.set_num_threads(2)
    try:
        sent = pickle.dumps(store({part: WithTargets(item, 9) for part in ("train", "test")}, tmp_path, clients=3))
        pickle.loads(sent).reopen()  # noqa: S301
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert threads == [1] * len(threads)
    assert len(threads) == 2 * 9 * 3  # twice where the run started, and once here


def run_tables(**data: Any) -> dict[str, Any]:
    phases = [{"name": "p", "rounds": 2, "cohort": 3, "local": {"lr": 0.1, "batch_size": 4}}]
    tables = {"name": f"{HERE}:source", "clients": 3} | data
    return {"data": tables, "model": {"name": "mlp", "hidden": [6]}, "phases": phases}


def test_a_run_has_the_bits_of_the_same_arrays_on_any_number_of_hosts(tmp_path: Path) -> None:
    vectors = []
    arrays = (PIXELS, LABELS, PIXELS[TEST], LABELS[TEST])
    for given, hosts in ((arrays, 1), (both(image), 1), (both(image), 3)):
        RETURNED["it"] = given
        job, _ = prepare(Scenario.from_tables(run_tables(augment=["flip"])), tmp_path)
        vectors.append(run_on_hosts(job, hosts)[0])
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(vectors[0], vectors[2])


def not_finite_at_3(row: int) -> Any:
    """An item that is not tried before the run."""
    return (np.where(row == 3, [np.nan, 1, 2], VECTORS[row]).astype(np.float32), int(LABELS[row]))


def too_large_at_3(row: int) -> Any:
    return (VECTORS[row].astype(np.float64) * (1e300 if row == 3 else 1), int(LABELS[row]))


def trained(**tables: Any) -> None:
    job, _ = prepare(Scenario.from_tables(run_tables() | tables), Path("no-data-here"))
    run_on_hosts(job, 1)


@pytest.mark.parametrize(("item", "wrong"), [(not_finite_at_3, 1), (too_large_at_3, 3)])
@pytest.mark.parametrize("schedule", ["parallel", "relay"])
def test_an_item_that_is_not_finite_is_named_in_place_of_the_learning_rate(
    item: Any, wrong: int, schedule: str
) -> None:
    RETURNED["it"] = {"train": Items(item), "test": Subset(Items(item), range(4, 12))}
    phase = {"name": "p", "rounds": 1, "cohort": 3, "schedule": schedule}
    with pytest.raises(ClientError, match=rf"the data is not finite: .*: train: item 3 \({wrong} of its 3") as caught:
        trained(phases=[phase])
    assert not caught.value.diverged
    assert "lr" not in str(caught.value)


def test_a_test_item_that_is_not_finite_is_named_in_place_of_a_loss_without_a_value() -> None:
    RETURNED["it"] = both(vector) | {"test": Items(not_finite_at_3)}
    with pytest.raises(DataError, match=r"the data is not finite: .*: test: item 3 \(1 of its 3 values\); leave"):
        trained()


def test_client_level_privacy_says_no_more_about_data_that_is_not_finite_than_before() -> None:
    RETURNED["it"] = both(vector) | {"train": Items(not_finite_at_3)}
    dp = {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01}
    phase = {"name": "p", "rounds": 1, "cohort": 3, "algorithm": {"name": "fedavg", "weighting": "uniform"}, "dp": dp}
    with pytest.raises(ClientError, match="training diverged: the loss is nan") as caught:
        trained(phases=[phase])
    assert "item" not in str(caught.value)


def test_divergence_on_finite_items_is_still_blamed_on_the_learning_rate() -> None:
    RETURNED["it"] = both(vector)
    with pytest.raises(ClientError, match=r"training diverged: .*lr") as caught:
        trained(phases=[{"name": "p", "rounds": 1, "cohort": 3, "local": {"lr": 1e30, "epochs": 9}}])
    assert caught.value.diverged


def empty(inputs: list[np.ndarray]) -> torch.Tensor:
    """A collation that divides by the spread of a sample."""
    return torch.stack([torch.from_numpy(one - one.mean()) / (one.std() if one[0] != 5 else 0) for one in inputs])


def test_a_collation_that_makes_inputs_not_finite_is_named() -> None:
    RETURNED["it"] = {"train": (np.full((N, 3), 5, np.float32), LABELS), "test": (VECTORS, LABELS)}
    data = run_tables(collate=f"{__name__}:empty")["data"]
    with pytest.raises(ClientError, match=r"data\.collate: makes inputs of the samples of train that are not finite"):
        trained(data=data, model=f"{__name__}:Linear")


class Linear(torch.nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, num_classes)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x)


def test_an_item_unlike_the_first_is_named_when_it_is_read(tmp_path: Path) -> None:
    def odd(row: int) -> Any:
        return (VECTORS[row, :2] if row == 1 else VECTORS[row]), LABELS[row]

    def named(row: int) -> Any:
        return {"a": VECTORS[row], "b": row}, LABELS[row]

    def nameless(row: int) -> Any:
        return ({"a": VECTORS[row]} if row == 1 else named(row)[0]), LABELS[row]

    rows = store({**both(vector), "train": Items(odd)}, tmp_path, clients=3).train.x
    with pytest.raises(
        DataError, match=r"train: the input of item 1 is \[2\] float32, but \[3\] .* for the first; .*data\.collate"
    ):
        rows[:2]
    fields = store({**both(named), "train": Items(nameless)}, tmp_path, clients=3).train.x
    with pytest.raises(DataError, match=r"train: item 1 has inputs a, but not 'b' like the first one"):
        fields.arrays["b"][:2]


def test_an_exception_of_a_dataset_is_one_line_and_the_traceback_of_its_code(tmp_path: Path) -> None:
    def broken(row: int) -> Any:
        return vector(row) if row < 5 else dict[int, Any]()[row]

    with pytest.raises(DataError) as caught:
        store(both(broken), tmp_path, clients=3)
    first, *rest = str(caught.value).splitlines()
    assert first == f"data.name: '{HERE}:source': train: item 5 raised KeyError: 5"
    assert "in broken" in "".join(rest)
