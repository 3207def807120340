"""Every public name is documented, and the examples in its docstrings run as they are printed."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rayfl.lazy_names import homes
from tests.test_public_names import PUBLIC

CLUSTER = "needs a running Ray cluster"
ALIAS = "a type alias"
RECEIVED = "rayfl passes it to your code; the example is at the function or method that receives it"
OWN_SCHEDULE = "works only inside a running schedule; examples/own_schedule.py uses it, and a test runs that"
MADE_BY_RAYFL = "rayfl makes it for a schedule while a scenario runs"
BUILT_IN = "scenarios name it, and its page has its options; the example of deriving from one is at Scaffold"

WITHOUT_EXAMPLE = {
    **{
        f"rayfl.algorithms.{name}": BUILT_IN
        for name in [
            "Adagrad",
            "Adam",
            "CoPreFL",
            "Contrastive",
            "Decorrelation",
            "Ditto",
            "FedBABU",
            "FedBN",
            "FedDyn",
            "FedExP",
            "FedMeta",
            "FedNova",
            "Momentum",
            "Orchestra",
            "PerFedAvg",
            "Proximal",
            "QFedAvg",
            "QFedSGD",
            "SGD",
            "Yogi",
        ]
    },
    "rayfl.ClientError": "the code of a client has to fail, and its traceback depends on the machine",
    "rayfl.DivergenceError": "a run has to diverge, which makes NumPy warn as well",
    "rayfl.Handle": CLUSTER,
    "rayfl.__version__": "a string",
    "rayfl.algorithms.Declaration": ALIAS,
    "rayfl.algorithms.Messages": ALIAS,
    "rayfl.algorithms.Part": ALIAS,
    "rayfl.algorithms.Requirement": ALIAS,
    "rayfl.algorithms.Round": ALIAS,
    "rayfl.attach": CLUSTER,
    "rayfl.local.ClientContext": RECEIVED,
    "rayfl.local.ClientUpdate": ALIAS,
    "rayfl.local.LossTerm": ALIAS,
    "rayfl.local.TrainingStep": RECEIVED,
    "rayfl.schedules.Asynchronous": OWN_SCHEDULE,
    "rayfl.schedules.Call": OWN_SCHEDULE,
    "rayfl.schedules.Cohort": ALIAS,
    "rayfl.schedules.Event": ALIAS,
    "rayfl.schedules.PhasePlan": MADE_BY_RAYFL,
    "rayfl.schedules.Schedule": OWN_SCHEDULE,
    "rayfl.schedules.ScheduleContext": MADE_BY_RAYFL,
    "rayfl.schedules.Submitted": MADE_BY_RAYFL,
    "rayfl.schedules.SubmittedRound": OWN_SCHEDULE,
    "rayfl.schedules.VirtualClock": MADE_BY_RAYFL,
    "rayfl.submit": CLUSTER,
    "rayfl.tasks.Reduction": ALIAS,
}
"""Public names whose docstring has no example that runs, each with the reason."""

NAMES = {f"{package}.{name}": (package, name) for package, names in PUBLIC.items() for name in names.split()}


def named(public: str) -> Any:
    """What a public name stands for."""
    package, name = NAMES[public]
    return getattr(import_module(package), name)


def below_assignment(public: str) -> str:
    """The text below the assignment that makes a name, where there is no class or function to hold a docstring."""
    package, name = NAMES[public]
    home = import_module(homes(package).get(name, package))
    body = ast.parse(Path(str(home.__file__)).read_text(encoding="utf-8")).body
    for statement, below in pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        is_name = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if is_name and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return str(below.value.value)
    return ""


def docstring(public: str) -> str:
    """The docstring of a name's own, none that it inherits."""
    value = named(public)
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__doc__ or ""
    return below_assignment(public)


def public_methods(public: str) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a class defines or overrides itself."""
    value = named(public)
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        is_method = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property)
        if is_method and not name.startswith("_"):
            yield name, getattr(value, name)


def examples(public: str) -> list[doctest.DocTest]:
    """The examples of a name and of its methods; those of each docstring share their variables and no others."""
    texts = {public: docstring(public)}
    texts.update({f"{public}.{name}": member.__doc__ or "" for name, member in public_methods(public)})
    read = doctest.DocTestParser().get_doctest
    found = [read(text, {"__name__": "example"}, name, None, 0) for name, text in texts.items()]
    return [test for test in found if test.examples]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated data, which the examples share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def elsewhere(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, no real data, and no Ray."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYFL_CACHE", str(cache))
    monkeypatch.delenv("RAYFL_DATA", raising=False)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an example starts Ray or connects to it")

    monkeypatch.setattr("ray.init", refuse)


def test_public_names_have_docstrings_of_their_own_and_their_methods_too() -> None:
    bare = [public for public in NAMES if not docstring(public).strip()]
    for public in NAMES:
        bare += [f"{public}.{name}" for name, member in public_methods(public) if not inspect.getdoc(member)]
    assert not bare, f"no docstring: {', '.join(bare)}"


TRAINS = {"rayfl.GridResult", "rayfl.Session", "rayfl.compare", "rayfl.plot"}
"""Whose examples train; of those that do, `rayfl.run` and `rayfl.grid` are quick."""


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "public", [pytest.param(name, marks=[pytest.mark.slow] if name in TRAINS else []) for name in NAMES]
)
def test_a_public_name_has_an_example_that_runs_or_a_reason_not_to(public: str) -> None:
    found = examples(public)
    if public in WITHOUT_EXAMPLE:
        assert not found, f"{public} has an example; take it off WITHOUT_EXAMPLE"
        return
    assert found, f"the docstring of {public} has no example (lines that begin with >>>)"
    for test in found:
        assert not any(doctest.SKIP in each.options for each in test.examples), f"{test.name} skips its example"
        printed: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append)
        assert not printed, "".join(printed)


def test_reasons_are_given_for_public_names_alone() -> None:
    assert WITHOUT_EXAMPLE.keys() <= NAMES.keys()
    assert all(WITHOUT_EXAMPLE.values())
