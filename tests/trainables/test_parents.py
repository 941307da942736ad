"""Runs that need other runs: which, what their tasks are given, and what a wrong `needs` is told."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from orchestrator.engine.pack_sizes import PackSizes
from tests.toy import Pupil, Teacher, Toy
from trainables.check import check_task
from trainables.needs import Parent, Tasks, WeightsError, given, needs_of, run_of, trained, untrained
from trainables.program import PATH as PROGRAM
from trainables.spec import RunSpec, run_key
from trainables.task import Data, Split, Task
from trainables.training.loop import Training
from trainables.training.packs import Pack

SHAPE: dict[str, Any] = {"dataset": "toys", "decoder": "linear", "depth": 0, "width": 1, "encoding": "none"}
SPEC = RunSpec(task="tests.toy:Pupil", N=8, data_count=40, seed=3, options=tuple(Pupil.defaults.items()), max_steps=60, **SHAPE)


class Grandchild(Toy):
    """Needs a pupil, which needs a teacher."""

    version = "1"
    defaults: Mapping[str, Any] = {}

    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        return {"pupil": dataclasses.replace(SPEC, seed=spec.seed)}

    def data(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> Data:
        data = self.samples(spec, "none")
        with torch.no_grad():
            train = data.train._replace(targets=parents["pupil"](data.train.inputs))
        return data._replace(train=train)


class Circle(Toy):
    """Needs itself, with another seed."""

    version = "1"

    def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
        return {"other": dataclasses.replace(spec, task="tests.trainables.test_parents:Circle", seed=spec.seed + 1)}

    def model(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> nn.Module:
        return nn.Linear(1, 1)


def weights_of(run: Training) -> bytes:
    return safetensors.torch.save(run.network.state_dict())


def finished(spec: RunSpec, task: Task) -> Training:
    run = Training(spec, task)
    run.advance()
    return run


def test_members_are_given_the_networks_that_parents_left() -> None:
    (teacher,) = needs_of(Pupil(), SPEC).values()
    left = finished(teacher, Teacher())
    task = trained(Pupil(), {"teacher": Parent(teacher, weights_of(left))})
    pupil = Training(SPEC, task)
    for one, other in zip(pupil.model.parameters(), left.network.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.requires_grad
    pupil.advance()
    again = finished(SPEC, trained(Pupil(), {"teacher": Parent(teacher, weights_of(left))}))
    assert pupil.result() == again.result()
    other = finished(SPEC, untrained(Pupil(), SPEC))
    assert other.result().ood_mse != pupil.result().ood_mse


def test_networks_of_parents_are_still_and_come_in_stages() -> None:
    spec = dataclasses.replace(SPEC, task="tests.trainables.test_parents:Grandchild", options=())
    (pupil,) = needs_of(Grandchild(), spec).values()
    (teacher,) = needs_of(Pupil(), pupil).values()
    left = finished(teacher, Teacher())
    parents = {"teacher": Parent(teacher, weights_of(left))}
    learned = finished(pupil, trained(Pupil(), parents))
    task = trained(Grandchild(), {"pupil": Parent(pupil, weights_of(learned), parents)})
    inputs = torch.ones(40, 1)
    assert torch.equal(task.data(spec).train.targets, learned.network(inputs))
    seen: list[Mapping[str, nn.Module]] = []

    class Looking(Pupil):
        def model(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> nn.Module:  # type: ignore[override]
            seen.append(parents)
            return super().model(spec, dict(parents))

    trained(Looking(), parents).model(SPEC)
    (network,) = seen[0].values()
    assert not network.training
    assert not any(p.requires_grad for p in network.parameters())
    with pytest.raises(TypeError):
        seen[0]["teacher"] = network  # type: ignore[index]


def test_of_damaged_weights_it_is_told_which_run_left_them() -> None:
    spec = dataclasses.replace(SPEC, task="tests.trainables.test_parents:Grandchild", options=())
    (pupil,) = needs_of(Grandchild(), spec).values()
    (teacher,) = needs_of(Pupil(), pupil).values()
    sound, damaged = safetensors.torch.save(nn.Linear(1, 1).state_dict()), b"damaged"
    for own, further, left in ((sound, damaged, teacher), (damaged, sound, pupil)):
        with pytest.raises(WeightsError, match=r"^Error while deserializing") as caught:
            trained(Grandchild(), {"pupil": Parent(pupil, own, {"teacher": Parent(teacher, further)})})
        assert caught.value.spec == left


def test_a_run_that_needs_nothing_is_given_an_empty_mapping() -> None:
    class Sometimes(Toy):
        def needs(self, spec: RunSpec) -> dict[str, RunSpec]:
            return {}

        def model(self, spec: RunSpec, parents: Mapping[str, nn.Module]) -> nn.Module:
            assert parents == {}
            return nn.Linear(1, 1)

    task = given(Sometimes(), {})
    task.model(SPEC)
    assert task.version == Toy.version
    assert not hasattr(task, "judged")
    assert given(Toy(), {}).__class__ is Toy


def test_the_own_task_and_those_of_parents_are_told_apart() -> None:
    tasks = Tasks(Pupil())
    (teacher,) = tasks.needs(SPEC).values()
    assert (type(tasks.of(SPEC)), type(tasks.of(teacher))) == (Pupil, Teacher)
    assert tasks.parents(SPEC) == {"teacher": run_key(teacher, Teacher.version)}
    assert tasks.parents(teacher) == {}
    own = Toy()
    assert Tasks(own).of(dataclasses.replace(SPEC, task="nowhere:Task")) is own  # what needs nothing is not looked up
    assert Tasks(own).needs(SPEC) == {}


@pytest.mark.parametrize(
    "change",
    [{"N": 9}, {"seed": 4}, {"lr": 0.1}, {"options": tuple({**Pupil.defaults, "outcome": "missed", "trouble_N": 8}.items())}],
    ids=lambda change: next(iter(change)),
)
def test_another_parent_means_another_key(change: dict[str, Any]) -> None:
    tasks, other = Tasks(Pupil()), dataclasses.replace(SPEC, **change)
    assert tasks.parents(other) != tasks.parents(SPEC)
    assert tasks.key(other) != tasks.key(SPEC)


def test_pupils_of_one_teacher_are_packed_as_they_are_alone() -> None:
    (teacher,) = needs_of(Pupil(), SPEC).values()
    parents = {"teacher": Parent(teacher, weights_of(finished(teacher, Teacher())))}
    specs = [dataclasses.replace(SPEC, data_count=count, stop="budget") for count in (5, 40)]
    packed, alone = ([Training(spec, trained(Pupil(), parents)) for spec in specs] for _ in range(2))
    Pack(packed).advance()
    for run, twin in zip(packed, alone, strict=True):
        twin.advance()
        assert abs(run.result().ood_mse - twin.result().ood_mse) < 1e-7  # type: ignore[operator]


class Rival(Pupil):
    """It begins anew, and is compared with its teacher; with options that runs of a pack may differ in."""

    packable = ("pause",)

    def model(self, spec: RunSpec) -> nn.Module:  # type: ignore[override]
        return Toy.model(self, spec)

    def measure(  # type: ignore[override]
        self, spec: RunSpec, outputs: Tensor, split: Split, parents: Mapping[str, nn.Module]
    ) -> Mapping[str, Tensor]:
        return {"correct": outputs[:, 0] > 0, "apart": (outputs - parents["teacher"](split.inputs)).abs().mean(1)}


def test_runs_with_teachers_of_their_own_are_packed_and_each_is_compared_with_its_own() -> None:
    specs = [dataclasses.replace(SPEC, task="tests.trainables.test_parents:Rival", seed=s, stop="budget") for s in (1, 2)]
    packs, other = PackSizes(Rival(), fixed=2), PackSizes(Pupil(), fixed=2)
    assert len({packs.together(spec) for spec in specs}) == 1
    assert len({other.together(dataclasses.replace(spec, task=SPEC.task)) for spec in specs}) == 2  # they begin as the teacher
    of_each = []
    for spec in specs:
        (teacher,) = needs_of(Rival(), spec).values()
        of_each.append({"teacher": Parent(teacher, weights_of(finished(teacher, Teacher())))})
    made = [[Training(s, trained(Rival(), parents)) for s, parents in zip(specs, of_each, strict=True)] for _ in range(2)]
    packed, alone = made
    pack = Pack(packed)
    pack.advance()
    assert not pack.unstacked
    for run, twin in zip(packed, alone, strict=True):
        twin.advance()
        assert run.result().measures["apart"] == pytest.approx(twin.result().measures["apart"], rel=1e-4)
    assert packed[0].result().measures["apart"] != pytest.approx(packed[1].result().measures["apart"], rel=1e-3)


@pytest.mark.parametrize("held_out", [False, True])
def test_runs_whose_samples_differ_in_shape_are_trained_one_by_one(held_out: bool) -> None:
    class Uneven(Toy):
        def data(self, spec: RunSpec) -> Data:
            train, others = Toy.data(self, spec)
            wide = [part._replace(inputs=part.inputs.expand(-1, 1 + spec.seed)) for part in (train, others)]
            return Data(train, wide[1]) if held_out else Data(wide[0], others)

        def model(self, spec: RunSpec) -> nn.Module:
            return _Means()

        def measure(self, spec: RunSpec, outputs: Tensor, split: Split) -> dict[str, Tensor]:
            return {"correct": outputs[:, 0] > 0}

    spec = dataclasses.replace(SPEC, task="tests.toy:Toy", options=tuple(Toy.defaults.items()), stop="budget", max_steps=40)
    pack = Pack([Training(dataclasses.replace(spec, seed=seed), Uneven()) for seed in (1, 2)])
    pack.advance()
    assert f"differ in shape ({'held out' if held_out else 'train'})" in pack.unstacked
    assert [run.result().steps for run in pack.runs] == [40, 40]


class _Means(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale * inputs.mean(1, keepdim=True)


def _broken(needs: Any, **more: Any) -> Task:
    task: Any = type("Broken", (Pupil,), {"needs": needs, **more})()
    return task


def _drawing(task: Any, spec: RunSpec) -> dict[str, RunSpec]:
    drawn = int(torch.randint(2**31, ()))
    return {"teacher": dataclasses.replace(Pupil().needs(spec)["teacher"], seed=drawn)}


def _without_parents(task: Any, spec: RunSpec) -> nn.Module:
    return nn.Linear(1, 1)


MUTE, TURNED = "tests.trainables.test_parents:Mute", "tests.trainables.test_parents:Turned"
BROKEN: dict[str, tuple[Task, str]] = {
    "no mapping": (_broken(lambda task, spec: [SPEC]), "must give runs by name"),
    "no spec": (_broken(lambda task, spec: {"teacher": "tests.toy:Teacher"}), "must give a RunSpec as teacher, not a str"),
    "a program": (
        _broken(lambda task, spec: {"teacher": dataclasses.replace(spec, task=PROGRAM)}),
        "the task's needs() gives as teacher a run of a program, which leaves no network: it must give a run of a task class",
    ),
    "a run without words": (
        _broken(lambda task, spec: {"teacher": RunSpec(task="tests.toy:Teacher", N=spec.N, seed=spec.seed)}),  # type: ignore[call-arg]
        "the task's needs() makes a run without 'dataset' and 'data_count': make it by trainables.run_of(task, N=..., "
        "seed=..., data_count=...), which chooses all else",
    ),
    "a run without a count": (
        _broken(lambda task, spec: {"teacher": run_of(Teacher, N=spec.N, seed=spec.seed)}),  # type: ignore[call-arg]
        "the task's needs() makes a run without 'data_count': make it",
    ),
    "a wrong setting": (
        _broken(lambda task, spec: {"teacher": run_of(Teacher, N=spec.N, seed=spec.seed, data_count=9, nose=1)}),
        "this task has no option 'nose': its options are ",
    ),
    "an exception": (_broken(lambda task, spec: 1 / 0), "needs() fails with ZeroDivisionError"),
    "a draw": (_broken(_drawing), "must give the same runs"),
    "nothing given": (_broken(Pupil.needs, model=_without_parents), "no member is given what they learned"),
    "a circle": (Circle(), "does a run need itself?"),
    "no such task": (
        _broken(lambda task, spec: {"teacher": dataclasses.replace(spec, task="nowhere:Teacher")}),
        "the task's needs() gives teacher a task that will not do: 'nowhere:Teacher' cannot be imported (ModuleNotFoundError",
    ),
    "another count": (
        _broken(lambda task, spec: {"teacher": dataclasses.replace(Pupil().needs(spec)["teacher"], data_count=1000)}),
        "teacher, which this task needs (tests.toy:Teacher): the task's needs() must give it a data_count that its counts() "
        "allow, 1 to 64, not 1000",
    ),
    "a broken parent": (
        _broken(lambda task, spec: {"teacher": dataclasses.replace(spec, task=MUTE, options=())}),
        "teacher, which this task needs (tests.trainables.test_parents:Mute): the task's measure() must give correct",
    ),
    "weights that cannot be kept": (
        _broken(lambda task, spec: {"teacher": dataclasses.replace(spec, task=TURNED, options=())}),
        "teacher, which this task needs (tests.trainables.test_parents:Turned): the task's model() must have nothing in its "
        "state that a safetensors file cannot hold, as its weights are kept, and its turn is of torch.complex128: register a ",
    ),
}  # fmt: skip


class Mute(Toy):
    version = "1"
    defaults: Mapping[str, Any] = {}

    def data(self, spec: RunSpec) -> Data:
        return self.samples(spec, "none")

    def measure(self, spec: RunSpec, outputs: Any, split: Any) -> dict[str, Any]:
        return {}


class Turned(Toy):
    version = "1"
    defaults: Mapping[str, Any] = {}

    def data(self, spec: RunSpec) -> Data:
        return self.samples(spec, "none")

    def model(self, spec: RunSpec) -> nn.Module:
        model = super().model(spec)
        model.register_buffer("turn", torch.ones(2, dtype=torch.complex128))
        return model


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_needs_is_told_in_one_sentence(name: str) -> None:
    task, told = BROKEN[name]
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        check_task(task, SPEC)
    assert "\n" not in str(caught.value)


def test_a_right_needs_passes_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    check_task(Pupil(), SPEC)
    check_task(Grandchild(), dataclasses.replace(SPEC, options=()))
    assert torch.equal(before, torch.get_rng_state())
    assert copy.copy(given(Pupil(), {})).version == Pupil.version
