"""Names resolve to objects, and options of a scenario are checked against type hints."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, Field, PositiveFloat, PositiveInt

from rayfl.config.registry import (
    Registry,
    asks_for,
    call_with_options,
    check_options,
    import_object,
    nearest,
    takes_option,
)
from rayfl.errors import DataError, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

SHAPES = Registry("shape", {"path": "pathlib:PurePath", "counter": "collections:Counter", "nowhere": "no_such:thing"})


def test_listing_the_names_of_a_registry_imports_nothing() -> None:
    assert list(SHAPES) == ["path", "counter", "nowhere"]


def test_a_registered_name_and_an_import_path_resolve_to_their_objects() -> None:
    assert SHAPES.resolve("path").__name__ == "PurePath"
    assert SHAPES.resolve("rayfl.config.registry:Registry") is Registry


def test_an_unknown_name_is_told_with_the_nearest_ones_and_how_to_name_your_own() -> None:
    with pytest.raises(ScenarioError) as caught:
        SHAPES.resolve("conter")
    assert str(caught.value) == "unknown shape 'conter'; did you mean 'counter'? (your own: 'package.module:object')"
    with pytest.raises(ScenarioError) as below:
        SHAPES.resolve("conter", "data.shape")
    assert str(below.value) == f"data.shape: {caught.value}"


def test_where_nothing_is_near_all_that_is_known_is_listed() -> None:
    assert nearest("xyz", ["beta", "alpha"]) == "known: alpha, beta"
    assert nearest("xyz", ["beta", "a/b", "beta/0", "beta/1"]) == "known: a/b, beta", "of parts, the whole is enough"
    assert nearest("beta/12", ["beta", "beta/0", "beta/11"]) == "did you mean 'beta/11' or 'beta/0' or 'beta'?"


def test_a_module_or_attribute_that_does_not_exist_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"':thing' is not an import path; write 'package\.module:object'"):
        SHAPES.resolve(":thing")
    with pytest.raises(ScenarioError, match=r"cannot import 'no_such:thing': .*PYTHONPATH"):
        SHAPES.resolve("nowhere")
    with pytest.raises(ScenarioError, match="module 'pathlib' has no 'Pat'; did you mean 'Path'"):
        import_object("pathlib:Pat")


def test_a_target_that_is_not_callable_takes_no_options() -> None:
    with pytest.raises(ScenarioError, match=r"^model: 3 cannot be called with options$"):
        check_options(3, {}, (), "model")  # type: ignore[arg-type]


def options_of(  # type: ignore[no-untyped-def]
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)],
    tries: PositiveInt = 3,
    share: Annotated[float, Field(ge=0, lt=1)] = 0.5,
    mode: Literal["zeros", "reflect"] = "zeros",
    widths: tuple[PositiveInt, PositiveInt] = (1, 2),
    hosts: PositiveInt | Literal["auto"] = "auto",
    folder: Path | None = None,
    verbose: bool = False,
    scale: float = 1.0,
    unsaid=None,
) -> dict[str, Any]:
    return dict(locals())


@dataclass(frozen=True)
class AsDataclass:
    beta: PositiveFloat
    mode: Literal["zeros", "reflect"] = "zeros"


class AsClass:
    def __init__(self, beta: PositiveFloat, mode: Literal["zeros", "reflect"] = "zeros") -> None:
        self.beta, self.mode = beta, mode


class Called:
    beta: str  # not what the call takes

    def __call__(self, beta: PositiveFloat, mode: Literal["zeros", "reflect"] = "zeros") -> None: ...


class AsModel(BaseModel):
    beta: PositiveFloat
    mode: Literal["zeros", "reflect"] = "zeros"


def refusal(target: Callable[..., Any], options: dict[str, Any], given: dict[str, Any] | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        call_with_options(target, options, given or {}, "data.partition")
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bata": 1}, "data.partition.bata: not an option of 'data.partition'; did you mean 'beta'?"),
        ({"tries": 2}, "data.partition: needs beta"),
        ({"beta": -1}, "data.partition.beta: must be greater than 0 (got -1)"),
        ({"beta": True}, "data.partition.beta: must be a valid number (got True)"),
        ({"beta": "0.1"}, "data.partition.beta: must be a valid number (got '0.1')"),
        ({"beta": float("inf")}, "data.partition.beta: must be a finite number (got inf)"),
        ({"beta": 1, "tries": False}, "data.partition.tries: must be a valid integer (got False)"),
        ({"beta": 1, "tries": 1.5}, "data.partition.tries: must be a valid integer (got 1.5)"),
        ({"beta": 1, "share": 1}, "data.partition.share: must be less than 1 (got 1)"),
        ({"beta": 1, "mode": "edge"}, "data.partition.mode: must be 'zeros' or 'reflect' (got 'edge')"),
        ({"beta": 1, "widths": [4, 0]}, "data.partition.widths.1: must be greater than 0 (got 0)"),
        ({"beta": 1, "widths": [True, 4]}, "data.partition.widths.0: must be a valid integer (got True)"),
        ({"beta": 1, "widths": [4]}, "data.partition.widths.1: is missing"),
        ({"beta": 1, "hosts": 0}, "data.partition.hosts: must be greater than 0 or must be 'auto' (got 0)"),
        (
            {"beta": 0, "share": -0.5},
            (
                "data.partition.beta: must be greater than 0 (got 0)\n"
                "data.partition.share: must be greater than or equal to 0 (got -0.5)"
            ),
        ),
    ],
)
def test_a_wrong_option_is_told_by_its_key_path(options: dict[str, Any], message: str) -> None:
    assert refusal(options_of, options) == message


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ({"beta": 1}, {"beta": 1.0}),
        ({"beta": 0.1, "widths": [4, 8]}, {"widths": (4, 8)}),
        ({"beta": 0.1, "folder": "there"}, {"folder": Path("there")}),
        ({"beta": 0.1, "folder": None}, {"folder": None}),
        ({"beta": 0.1 + 0.2}, {"beta": 0.1 + 0.2}),
        ({"beta": 0.1, "verbose": True}, {"verbose": True}),
        ({"beta": 0.1, "hosts": 2}, {"hosts": 2}),
        ({"beta": 0.1, "scale": float("inf")}, {"scale": float("inf")}),
        ({"beta": 0.1, "unsaid": [True]}, {"unsaid": [True]}),
    ],
)
def test_the_target_gets_the_value_that_its_hint_promises(options: dict[str, Any], passed: dict[str, Any]) -> None:
    result = call_with_options(options_of, options, {}, "data.partition")
    for key, value in passed.items():
        assert result[key] == value
        assert type(result[key]) is type(value)


@pytest.mark.parametrize(
    "target",
    [AsDataclass, AsClass, AsModel, Called(), partial(options_of, tries=2)],
    ids=["dataclass", "class", "pydantic model", "callable object", "partial"],
)
def test_the_options_of_every_callable_are_checked(target: Callable[..., Any]) -> None:
    assert refusal(target, {"beta": 0}) == "data.partition.beta: must be greater than 0 (got 0)"
    assert refusal(target, {"beta": 1, "mode": 3}) == "data.partition.mode: must be 'zeros' or 'reflect' (got 3)"
    assert refusal(target, {"bata": 1}).startswith("data.partition.bata: not an option")
    assert refusal(target, {}) == "data.partition: needs beta"
    call_with_options(target, {"beta": 1}, {}, "data.partition")


def test_a_target_with_open_keywords_takes_any_option_and_checks_it_against_their_hint() -> None:
    def target(first: int, **others: PositiveInt) -> dict[str, int]:
        return {"first": first, **others}

    assert call_with_options(target, {"second": 2}, {"first": -1}, "model") == {"first": -1, "second": 2}
    assert refusal(target, {"second": 0}) == "data.partition.second: must be greater than 0 (got 0)"


def test_open_keywords_get_nothing_that_rayfl_knows_unless_it_is_named() -> None:
    """Torchvision's factories pass their options to a constructor without `input_shape`."""

    def target(num_classes: int, **others: Any) -> tuple[int, dict[str, Any]]:
        return num_classes, others

    given = {"num_classes": 10, "input_shape": (28, 28, 1)}
    assert call_with_options(target, {"width": 2}, given, "model") == (10, {"width": 2})


def test_an_option_that_names_a_positional_only_parameter_is_not_an_option() -> None:
    def target(first: int = 1, /, second: int = 2) -> int:
        return first + second

    assert refusal(target, {"first": 3}) == "data.partition.first: not an option of 'data.partition'; known: second"


def test_a_hint_that_only_type_checkers_can_resolve_leaves_the_options_unchecked() -> None:
    def target(names: AbstractSet[str], count: PositiveInt) -> tuple[Any, Any]:
        return names, count

    assert call_with_options(target, {"names": 1, "count": 0}, {}, "model") == (1, 0)


def test_a_hint_that_says_nothing_to_pydantic_leaves_its_option_unchecked() -> None:
    def target(weights: np.ndarray, count: PositiveInt = 1, missing: Any = None) -> Any:
        return weights

    weights = [1, 2]
    assert call_with_options(target, {"weights": weights}, {}, "model") is weights
    assert refusal(target, {"weights": weights, "count": 0}).startswith("data.partition.count")


def test_a_reference_inside_a_hint_that_resolves_to_nothing_leaves_its_option_unchecked() -> None:
    def target(**options: Any) -> Any:
        return options

    hint = list["NoSuchName"]  # type: ignore[name-defined] # noqa: F821
    parameter = inspect.Parameter("values", inspect.Parameter.KEYWORD_ONLY, annotation=hint)
    target.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    assert call_with_options(target, {"values": 3}, {}, "model") == {"values": 3}


def test_known_arguments_are_not_checked_and_passed_only_on_request() -> None:
    def target(num_classes: PositiveInt, input_shape: Sequence[int] = ()) -> tuple[Any, Any]:
        return num_classes, input_shape

    given = {"num_classes": 0, "labels": np.zeros(3)}
    assert call_with_options(target, {}, given, "model") == (0, ())


def test_an_option_goes_before_what_rayfl_knows() -> None:
    def target(num_classes: PositiveInt) -> int:
        return num_classes

    assert call_with_options(target, {"num_classes": 5}, {"num_classes": 10}, "model") == 5


def test_required_and_accepted_arguments_of_a_signature() -> None:
    def closed(beta: float) -> None: ...

    def opened(beta: float, **others: Any) -> None: ...

    assert [asks_for(closed, "beta"), asks_for(closed, "width"), asks_for(opened, "width")] == [True, False, False]
    assert [takes_option(closed, "beta"), takes_option(closed, "width"), takes_option(opened, "width")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "path",
    ["os:system", "os.path:exists", "builtins:len", "builtins:dict", "json:dumps", "collections:Counter", "sys:exit"],
)
def test_parts_of_python_are_rejected_before_a_call(path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        SHAPES.resolve(path)
    assert str(caught.value) == f"shape '{path}': is part of Python, so rayfl did not call it"


def users_module(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, name: str = "brought_along") -> None:
    (folder / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_users_module_may_have_the_name_of_one_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users_module(tmp_path, monkeypatch, "def load(): return 3", name="this")
    assert SHAPES.resolve("this:load")() == 3
    monkeypatch.delitem(sys.modules, "this")


def import_error(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> list[str]:
    users_module(folder, monkeypatch, code)
    with pytest.raises(ScenarioError) as caught:
        import_object("brought_along:Net")
    return str(caught.value).splitlines()


def test_a_module_that_exits_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert import_error(tmp_path, monkeypatch, "import sys; sys.exit(3)") == [
        "cannot import 'brought_along:Net': module 'brought_along' tried to exit the process (SystemExit: 3)"
    ]


def test_an_error_in_a_module_is_shown_with_the_traceback_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, header, place, *_, last = import_error(tmp_path, monkeypatch, "\nraise KeyError('rate')")
    assert first == "cannot import 'brought_along:Net': module 'brought_along' raised KeyError: 'rate'"
    assert header == "Traceback (most recent call last):"
    assert place == f'  File "{tmp_path}/brought_along.py", line 2, in <module>'
    assert last == "KeyError: 'rate'"


def test_a_module_that_is_no_python_is_told_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, place, *_ = import_error(tmp_path, monkeypatch, "def Net(:")
    assert first.startswith("cannot import 'brought_along:Net': module 'brought_along' raised SyntaxError: ")
    assert place == f'  File "{tmp_path}/brought_along.py", line 1'


def raising(error: BaseException) -> Callable[[], None]:
    def user_function() -> None:
        raise error

    return user_function


def test_an_exception_of_a_target_is_reported_as_its_own() -> None:
    first, header, place, code, last = refusal(raising(ValueError("two\nlines")), {}).split("\n", 4)
    named = f"'{__name__}:raising.<locals>.user_function'"
    assert first == f"data.partition: {named} raised ValueError: two lines"
    assert header == "Traceback (most recent call last):"
    assert place.endswith("in user_function")
    assert code.strip() == "raise error"
    assert last == "ValueError: two\nlines"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(2), "tried to exit the process (SystemExit: 2)"),
        (MemoryError(), "ran out of memory (MemoryError)"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            ("ran out of memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes)"),
        ),
    ],
)
def test_an_exit_and_a_lack_of_memory_are_told_in_one_line(error: BaseException, message: str) -> None:
    assert refusal(raising(error), {}) == f"data.partition: '{__name__}:raising.<locals>.user_function' {message}"


def test_a_call_that_does_not_fit_the_signature_is_told_in_one_line() -> None:
    def target(first: int, /) -> None: ...

    (line,) = refusal(target, {}).splitlines()
    assert "target' raised TypeError: " in line
    assert "missing 1 required positional argument: 'first'" in line


def test_errors_that_are_already_in_rayfls_words_pass_unchanged() -> None:
    with pytest.raises(DataError, match=r"^no files$"):
        call_with_options(raising(DataError("no files")), {}, {}, "data")


def test_an_interruption_is_no_error_of_the_target() -> None:
    with pytest.raises(KeyboardInterrupt):
        call_with_options(raising(KeyboardInterrupt()), {}, {}, "data")


def test_an_option_nested_too_deeply_is_rejected() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    assert refusal(options_of, {"beta": 1, "widths": value}).startswith("data.partition.widths: is nested too deeply")
