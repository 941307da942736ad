"""What a task lets its users choose: a frozen dataclass, or the words and defaults of tasks written before there was one."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import pytest

from orchestrator.searches.space import Space, log_range
from tests.toy import Toy
from trainables import read_settings, setting
from trainables.check_words import check_words
from trainables.settings import WORDS_OF, Setting, complete, settings_class, settings_of, spec_fields, value_of, with_values
from trainables.spec import RunSpec, run_key
from trainables.task import load_task


@dataclass(frozen=True, kw_only=True)
class Choices:
    decoder: str = setting("linear", "Network.", words=("linear", "mlp"))
    width: int | None = setting(None, "Units.", low=1, high=64, shown="linear 1, mlp 8")
    rate: float = setting(0.5, "A rate.", low=0, high=1)
    strict: bool = setting(True)
    name: str = setting("plain")

    def __post_init__(self) -> None:
        if self.width is None:
            object.__setattr__(self, "width", 1 if self.decoder == "linear" else 8)
        if self.name == "odd" and self.strict:
            raise ValueError("an odd name cannot be strict")


class Chosen:
    version = "1"
    settings = Choices
    packable = ("rate",)
    cheap = ("linear",)


def test_fields_of_a_spec_hold_what_it_has_fields_for_and_options_the_rest() -> None:
    fields = spec_fields(Chosen(), {"decoder": "mlp", "rate": 1})
    assert fields == {
        **{"dataset": "chosen", "decoder": "mlp", "depth": 0, "width": 8, "encoding": "", "holdout": ""},
        "options": (("rate", 1.0), ("strict", True), ("name", "plain")),
    }
    assert type(dict(fields["options"])["rate"]) is float
    spec = RunSpec(task="x:Y", N=8, data_count=1, seed=0, **fields)
    assert read_settings(Choices, spec) == Choices(decoder="mlp", width=8, rate=1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decoder": "rnn"}, "decoder 'rnn' is unknown: choose linear or mlp"),
        ({"width": 0}, "width must be at least 1, not 0"),
        ({"width": 65}, "width must be at most 64, not 65"),
        ({"width": 2.0}, "width must be a whole number, not 2.0"),
        ({"width": True}, "width must be a whole number, not True"),
        ({"rate": math.nan}, "rate must be a finite number, not nan"),
        ({"rate": 10**400}, "rate must be a finite number, not 1"),
        ({"rate": -0.1}, "rate must be at least 0, not -0.1"),
        ({"strict": 1}, "strict must be True or False, not 1"),
        ({"name": 3}, "name must be a word, not 3"),
        ({"name": "odd"}, "an odd name cannot be strict"),
        ({"sigma": 1.0}, "this task has no option 'sigma': its options are decoder, width, rate, strict, name"),
    ],
)
def test_a_wrong_value_is_refused_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        complete(Chosen(), given)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(int, "3", 3), (float, "1e-3", 1e-3), (bool, "no", False), (bool, "True", True), (str, "3", "3")],
)
def test_what_a_user_writes_is_read_by_its_type(kind: type, text: str, value: object) -> None:
    assert Setting("x", kind, None).read(text) == value
    if kind is not str:
        with pytest.raises(ValueError, match=f"the option x takes {WORDS_OF[kind]}, not 'wide'"):
            Setting("x", kind, None).read("wide")


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 2.9), (int, math.inf), (int, math.nan), (float, 10**400)],
    ids=["fraction", "inf", "nan", "huge"],
)
def test_a_value_that_is_no_text_is_not_cut_to_its_type(kind: type, value: float) -> None:
    with pytest.raises(ValueError, match=f"^the option x takes {WORDS_OF[kind]}, not "):
        Setting("x", kind, None).read(value)
    assert Setting("x", int, None).read(2.0) == 2


def made(name: str, kind: Any, default: Any, frozen: bool = True) -> type:
    return make_dataclass("Made", [(name, kind, default)], frozen=frozen)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (made("a", int, 1, frozen=False), "settings must be a frozen dataclass"),
        (dict, "settings must be a frozen dataclass"),
        (made("a", list, None), "setting a must be a bool, int, float or str"),
        (made("a", int | str, 1), "setting a must be a bool, int, float or str"),
        (made("seed", int, 1), "setting seed has the name of something that every run has: rename it"),
        (make_dataclass("Made", [("a", int)], frozen=True), "setting a must have a default"),
        (made("a", str, setting("x", words=("y", "z"))), "default of the setting a 'x' is unknown: choose y or z"),
        (made("a", int, setting(0, low=1)), "default of the setting a must be at least 1, not 0"),
        (made("a", int, setting(None)), "settings leave a at None: give it another default, or set it in"),
    ],
)
def test_wrong_settings_of_a_task_are_told_in_one_sentence(kind: type, message: str) -> None:
    task = type("Task", (), {"version": "1", "settings": kind})()
    with pytest.raises(ValueError, match=r"^the task's ") as caught:
        check_words(task)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_may_be_numbers_and_metadata_of_others_are_left_alone() -> None:
    fields = [("size", int, setting(16, words=(16, 32))), ("gap", int, field(default=1, metadata={"unit": "px"}))]
    kind = make_dataclass("Made", fields, frozen=True)
    task = type("Task", (), {"version": "1", "settings": kind})()
    assert complete(task, {"size": 32}) == {"size": 32, "gap": 1}
    with pytest.raises(ValueError, match=r"^size 17 is unknown: choose 16 or 32$"):
        complete(task, {"size": 17})


def test_whatever_settings_raise_is_told_in_one_sentence() -> None:
    def halve(self: Any) -> None:
        self.width // self.share

    fields = [("width", int, 8), ("share", int, 1)]
    kind = make_dataclass("Made", fields, frozen=True, namespace={"__post_init__": halve})
    task = type("Task", (), {"version": "1", "settings": kind})()
    check_words(task)
    with pytest.raises(ValueError, match=r"^the task's settings fail with ZeroDivisionError: .*, given share = 0: choose"):
        complete(task, {"share": 0})
    broken = type("Task", (), {"version": "1", "settings": make_dataclass(
        "Made", [("share", int, 0), ("width", int, 8)], frozen=True, namespace={"__post_init__": halve})})()  # fmt: skip
    with pytest.raises(ValueError, match=r"^the task's settings fail with ZeroDivisionError: .* given their defaults: choose"):
        check_words(broken)


def test_a_setting_that_stays_none_is_named() -> None:
    kind = make_dataclass("Made", [("width", int, 8), ("share", float | None, None)], frozen=True)
    task = type("Task", (), {"version": "1", "settings": kind})()
    with pytest.raises(ValueError, match=r"^the task's settings leave share at None: give it another default, or set it in"):
        complete(task, {})
    assert complete(task, {"share": 0.5}) == {"width": 8, "share": 0.5}


def test_names_of_other_members_must_be_those_of_settings() -> None:
    check_words(Chosen())  # type: ignore[arg-type]
    wrong = {"packable": ("decoder", "settings, rate, strict, name"), "cheap": ("rnn", "decoders, linear, mlp")}
    for member, (name, known) in wrong.items():
        task = type("Task", (Chosen,), {member: (name,)})()
        with pytest.raises(ValueError, match=f"the task's {member} must name some of its {known}, not '{name}'"):
            check_words(task)


def test_a_task_with_words_and_defaults_in_place_of_settings_works_as_it_did() -> None:
    toy = load_task("tests.toy:Toy")
    known = settings_of(settings_class(toy))
    assert list(known) == ["dataset", "decoder", "depth", "width", "encoding", "holdout", *Toy.defaults]
    fields = spec_fields(toy, {"pause": 2})
    assert dict(fields["options"]) == {**Toy.defaults, "pause": 2.0}
    assert {name: fields[name] for name in ("depth", "width", "holdout")} == dict(Toy().preset("toys", "linear"))
    with pytest.raises(ValueError, match="no option 'shape': its options are dataset, decoder"):
        spec_fields(toy, {"shape": "round"})


@pytest.mark.parametrize(("path", "lacks"), [("pathlib:Path", "version, settings, counts"), (f"{__name__}:Chosen", "counts")])
def test_what_is_no_task_is_told_what_it_lacks(path: str, lacks: str) -> None:
    with pytest.raises(ValueError, match=f"is not a task: it lacks {lacks}"):
        load_task(path)


class Grown(Chosen):
    @dataclass(frozen=True, kw_only=True)
    class settings(Choices):  # noqa: N801 - a task calls it so
        damping: float = setting(1.0, later=True)
        shuffled: bool = setting(True, later=True)


def grown(given: dict[str, Any]) -> RunSpec:
    return RunSpec(task=f"{__name__}:Grown", N=8, data_count=1, seed=0, **spec_fields(Grown(), given))


def test_a_setting_that_came_later_leaves_older_keys_as_they_are() -> None:
    fields = spec_fields(Chosen(), {"rate": 1.0, "decoder": "mlp"}) | {"dataset": "grown"}
    before = RunSpec(task=f"{__name__}:Grown", N=8, data_count=1, seed=0, **fields)
    now = grown({"rate": 1.0, "decoder": "mlp", "damping": 1})
    assert run_key(now, "1") == run_key(before, "1")
    assert read_settings(Grown.settings, before) == Grown.settings(rate=1.0, decoder="mlp", width=8, damping=1.0, shuffled=True)
    assert [value_of(before, name) for name in ("damping", "shuffled", "rate", "width")] == [1.0, True, 1.0, 8]
    other = grown({"rate": 1.0, "decoder": "mlp", "damping": 2, "shuffled": False})
    assert dict(other.options).items() >= {"damping": 2.0, "shuffled": False}.items()
    assert run_key(other, "1") != run_key(before, "1")
    assert (value_of(other, "damping"), value_of(other, "shuffled")) == (2.0, False)
    assert run_key(with_values(other, {"damping": 1.0, "shuffled": True}), "1") == run_key(before, "1")
    assert run_key(other.with_value("damping", 1.0).with_value("shuffled", True), "1") == run_key(before, "1")
    with pytest.raises(KeyError, match="lambda"):
        value_of(before, "lambda")


class Whole(Chosen):
    @dataclass(frozen=True, kw_only=True)
    class settings(Choices):  # noqa: N801 - a task calls it so
        alpha: float = setting(0, "New.", later=True)


def test_a_later_setting_that_is_a_float_may_have_a_whole_number_as_its_default() -> None:
    fields = spec_fields(Whole(), {})
    assert fields["options"] == spec_fields(Chosen(), {})["options"]
    spec = RunSpec(task=f"{__name__}:Whole", N=8, data_count=1, seed=0, **fields)
    other = with_values(spec, {"alpha": 2.0})
    assert dict(other.options)["alpha"] == 2.0
    assert with_values(other, {"alpha": 0.0}) == spec
    for default in (value_of(spec, "alpha"), read_settings(Whole.settings, spec).alpha):
        assert (default, type(default)) == (0.0, float)


def test_what_a_later_setting_means_is_not_imported_for_a_run_of_another_task() -> None:
    with pytest.raises(KeyError, match="damping"):
        value_of(replace(grown({}), task="trainables.no_such_module:Task"), "damping")
    assert not any(name.startswith("trainables.no_such") for name in sys.modules)


def test_a_space_knows_runs_that_do_not_carry_a_later_setting() -> None:
    space = Space([log_range("damping", 0.1, 10.0)], lambda values, seed: grown(dict(values)))
    assert space.values(grown({})) == {"damping": 1.0}
    assert space.values(grown({"damping": 3.0})) == {"damping": 3.0}
