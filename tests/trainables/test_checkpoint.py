"""A checkpoint with values that no run has is not continued: the run starts anew, and ends as it would have."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from orchestrator.engine.messages import Order, RunOrder, RunReport
from orchestrator.engine.worker import ELSEWHERE, PackTrainable
from orchestrator.versions import versions
from trainables.bumps import BumpTask
from trainables.spec import RunSpec, run_key
from trainables.training.adamw import MOMENTS
from trainables.training.checkpoint import check_saved
from trainables.training.loop import Training
from trainables.training.result import CURVES

SPEC = RunSpec(
    task="trainables.bumps:BumpTask", dataset="bumps", N=8, data_count=20, seed=0, decoder="mlp", depth=1, width=8,
    max_steps=120, options=tuple(BumpTask().defaults.items()), stop="budget",
)  # fmt: skip
KEY = run_key(SPEC, BumpTask.version)

State = dict[str, Any]


def saved_state(steps: int) -> State:
    """What a run saves after so many steps."""
    return copy.deepcopy(_saved_state(steps))


@functools.cache
def _saved_state(steps: int) -> State:
    training = Training(SPEC, BumpTask())
    while training.step < steps:
        training.advance(0.0)
    return {"training": training.state_dict(), "seconds": 1.5}


def load(saved: State) -> tuple[Training, float, dict[str, str]]:
    """The training, its seconds so far, and what the user is told. The checkpoint has no digest, as older ones have none."""
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    return load_bytes(buffer.getvalue())


def worker(pack_size: int = 1) -> PackTrainable:
    """One whose runs are not begun."""
    trainable = PackTrainable.__new__(PackTrainable)
    runs = [RunOrder(key=KEY, spec=SPEC.to_dict())] * pack_size
    trainable._begin({"order": Order(runs=runs), "gpus": 0.0})
    trainable._seconds[KEY] = 0.0
    return trainable


def load_bytes(checkpoint: bytes) -> tuple[Training, float, dict[str, str]]:
    trainable = worker()
    training = trainable._load(RunOrder(key=KEY, spec={}, checkpoint=checkpoint), SPEC, "cpu")
    return training, trainable._seconds[KEY], trainable._notices


def checkpoint_of(saved: State, of: PackTrainable | None = None) -> bytes:
    """What a worker saves."""
    trainable = worker() if of is None else of
    trainable._seconds[KEY] = saved["seconds"]
    return trainable._saved(KEY, saved["training"])


def equal(one: Any, other: Any) -> bool:
    """Whether two states are the same bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else repr(one) == repr(other)


def put(name: str, value: Any) -> Callable[[State], None]:
    return lambda saved: saved["training"].__setitem__(name, value)


def shorten(*names: str) -> Callable[[State], None]:
    def change(saved: State) -> None:
        for name in names:
            saved["training"][name].pop()

    return change


def in_optimizer(name: str, value: Any) -> Callable[[State], None]:
    return lambda saved: saved["training"]["optimizer"]["param_groups"][0].__setitem__(name, value)


def first_tensor(tensors: dict[Any, Any]) -> torch.Tensor:
    return next(iter(tensors.values()))


ABSURD: dict[str, Callable[[State], Any]] = {
    "a negative step": put("step", -5),
    "a step beyond the last": put("step", 10**12),
    "the last step": put("step", 120),
    "a step of NaN": put("step", float("nan")),
    "a step of True": put("step", True),
    "a step that the curve does not know": put("step", 70),
    "a run that has ended": put("reason", "target"),
    "a passage in the future": put("passage_step", 100),
    "a passage between two looks": put("passage_step", 7),
    "a run that was given up in the future": put("given_up_step", 100),
    "a run that was given up between two looks": put("given_up_step", 7),
    "a chance of 2": put("chance", 2.0),
    "a chance of NaN": put("chance", float("nan")),
    "norms of looks to come": put("curve_norm", [1.0, 1.0, 1.0]),
    "a norm of NaN": put("curve_norm", [float("nan")]),
    "an offset of NaN": put("offset", float("nan")),
    "an offset of 2": put("offset", 2.0),
    "a retry that never comes": put("retry_step", 10**9),
    "a list of losses": put("loss_sum", torch.zeros(3)),
    "a short curve": shorten("curve_loss"),
    "short curves": shorten(*CURVES),
    "other steps": put("curve_step", [20, 39]),
    "a loss of NaN": put("curve_loss", [0.1, float("nan")]),
    "an accuracy of 2": put("curve_accuracy", [0.1, 2.0]),
    "errors that are words": put("curve_error", ["a", "b"]),
    "a curve that is a number": put("curve_loss", 3.0),
    "negative seconds": lambda saved: saved.__setitem__("seconds", -1.0),
    "seconds that no row holds": lambda saved: saved.__setitem__("seconds", 2.0**31),
    "endless seconds": lambda saved: saved.__setitem__("seconds", float("inf")),
    "weights of NaN": lambda saved: first_tensor(saved["training"]["model"]).fill_(float("nan")),
    "another weight decay": in_optimizer("weight_decay", 0.5),
    "other betas": in_optimizer("betas", (0.1, 0.1)),
    "moments of NaN": lambda saved: saved["training"]["optimizer"]["state"][0]["exp_avg"].fill_(float("nan")),
    "negative squares": lambda saved: saved["training"]["optimizer"]["state"][0]["exp_avg_sq"].fill_(-1.0),
    "squares of NaN": lambda saved: saved["training"]["optimizer"]["state"][0]["exp_avg_sq"].fill_(float("nan")),
    "infinite moments": lambda saved: saved["training"]["optimizer"]["state"][0]["exp_avg"].fill_(float("inf")),
    "moments without squares": lambda saved: saved["training"]["optimizer"]["state"][0].pop("exp_avg_sq"),
    "moments of another optimizer": lambda saved: saved["training"]["optimizer"]["state"][0].__setitem__(
        "exp_avg_max", saved["training"]["optimizer"]["state"][0]["exp_avg"]
    ),
    "two learning rates": in_optimizer("lr", torch.tensor([0.1, 0.2])),
    "a learning rate that is a word": in_optimizer("lr", "fast"),
    "a learning rate of NaN": in_optimizer("lr", float("nan")),
    "a complex loss": put("loss_sum", torch.zeros((), dtype=torch.complex64)),
    "moments of another shape": lambda saved: saved["training"]["optimizer"]["state"][0].__setitem__("exp_avg", torch.zeros(1)),
    "no step at all": lambda saved: saved["training"].pop("step"),
    "a list": lambda saved: saved.__setitem__("training", [1, 2]),
}


@pytest.mark.parametrize("what", ABSURD)
def test_a_run_starts_anew_from_a_checkpoint_that_no_run_has_left(what: str) -> None:
    saved = saved_state(50)
    ABSURD[what](saved)
    training, seconds, notices = load(saved)
    assert (training.step, training.curve_step, seconds) == (0, [], 0.0)
    assert notices[KEY].startswith("its checkpoint cannot be read, so it starts from the beginning (")


def test_a_run_of_whose_checkpoint_a_part_was_loaded_starts_from_its_own_weights() -> None:
    saved = saved_state(50)
    saved["training"]["model"].popitem()
    training, seconds, notices = load(saved)
    assert "Missing key(s)" in notices[KEY]
    assert (training.step, seconds) == (0, 0.0)
    assert equal(training.state_dict(), Training(SPEC, BumpTask()).state_dict())


@pytest.mark.slow(1)
@pytest.mark.parametrize("steps", [1, 19, 20, 50, 119])
def test_what_a_run_has_left_is_continued(steps: int) -> None:
    training, seconds, notices = load(saved_state(steps))
    assert (training.step, seconds, notices) == (steps, 1.5, {})
    whole = Training(SPEC, BumpTask())
    for run in (training, whole):
        run.advance()
    assert training.result() == whole.result()


def test_a_checkpoint_is_continued_as_it_was_saved_or_named_as_damaged() -> None:
    saved = saved_state(50)
    checkpoint = checkpoint_of(saved)
    training, seconds, notices = load_bytes(checkpoint)
    assert (seconds, notices) == (1.5, {})
    assert equal(training.state_dict(), saved["training"])
    rng = random.Random(0)
    for place in [0, 10, 100, len(checkpoint) - 1, *(rng.randrange(len(checkpoint)) for _ in range(40))]:
        damaged = bytearray(checkpoint)
        damaged[place] ^= 1 << rng.randrange(8)
        training, seconds, notices = load_bytes(bytes(damaged))
        assert (training.step, seconds, list(notices)) == (0, 0.0, [KEY]), place


def test_a_row_tells_whether_its_run_was_begun_elsewhere() -> None:
    saved = saved_state(50)

    def told_by(one: PackTrainable, checkpoint: bytes) -> list[str]:
        one._load(RunOrder(key=KEY, spec={}, checkpoint=checkpoint), SPEC, "cpu")
        return one._placed(RunReport(), KEY).versions.split()

    here, pack = worker(), worker(pack_size=3)
    assert told_by(here, checkpoint_of(saved)) == versions().split()
    assert told_by(pack, checkpoint_of(saved)) == [*versions().split(), ELSEWHERE]
    back = worker()
    assert told_by(back, checkpoint_of(saved, pack)) == [*versions().split(), ELSEWHERE], "it was elsewhere before that"
    again = worker(pack_size=3)
    assert told_by(again, checkpoint_of(saved, pack)) == [*versions().split(), ELSEWHERE], "its beginning was elsewhere"
    assert told_by(worker(pack_size=3), checkpoint_of(saved, worker(pack_size=3))) == versions().split()
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    assert told_by(worker(pack_size=3), buffer.getvalue()) == versions().split(), "older checkpoints do not say"


def test_a_cut_checkpoint_is_named_as_damaged() -> None:
    checkpoint = checkpoint_of(saved_state(50))
    for length in (0, 1, 30, 100, len(checkpoint) // 2, len(checkpoint) - 1):
        training, _, notices = load_bytes(checkpoint[:length])
        assert (training.step, list(notices)) == (0, [KEY]), length
    why = "it is damaged: its bytes are not those that were saved"
    assert notices[KEY] == f"its checkpoint cannot be read, so it starts from the beginning ({why})"


def test_a_gradient_whose_square_is_infinite_does_not_spoil_checkpoints() -> None:
    """Squares stay infinite for ever, and weights with such a gradient stay as they are. The run goes on."""
    saved = saved_state(50)
    moments = saved["training"]["optimizer"]["state"][0]
    moments["exp_avg_sq"].flatten()[3] = float("inf")
    training, seconds, notices = load_bytes(checkpoint_of(saved))
    assert (training.step, seconds, notices) == (50, 1.5, {})
    assert equal(training.state_dict(), saved["training"])
    training.train_step()
    assert all(bool(p.isfinite().all()) for p in training.model.parameters())


@pytest.mark.parametrize("lr", [0.25, torch.tensor(0.25)])
def test_the_learning_rate_of_a_checkpoint_may_be_that_of_a_gpu(lr: Any) -> None:
    """There it is a tensor."""
    saved = saved_state(50)
    in_optimizer("lr", lr)(saved)
    training, _, notices = load(saved)
    assert (training.step, notices) == (50, {})


def test_moments_that_lie_otherwise_in_memory_than_their_weights_are_not_continued() -> None:
    """Packs of CNNs in bfloat16 once saved such, and they were of other weights than they said."""
    spec = dataclasses.replace(SPEC, decoder="cnn", precision="bfloat16")
    training, fresh = (Training(spec, BumpTask()) for _ in range(2))
    training.advance(0.0)
    saved: State = {"training": training.state_dict(), "seconds": 1.5}
    check_saved(saved, fresh)
    model = saved["training"]["model"]
    model |= {name: weight.contiguous() for name, weight in model.items()}
    with pytest.raises(ValueError, match="no run has such values of layout"):
        check_saved(saved, fresh)


def test_a_list_that_holds_a_list_twice_and_so_on_is_refused_at_once() -> None:
    """A file of two thousand bytes holds 2^60 tensors in this way."""
    training, fresh = (Training(SPEC, BumpTask()) for _ in range(2))
    training.advance(0.0)
    saved: State = {"training": training.state_dict(), "seconds": 1.5}
    twice: list[Any] = [torch.zeros(1)]
    for _ in range(60):
        twice = [twice, twice]
    saved["training"]["optimizer"]["state"] = {0: dict.fromkeys(("step", *MOMENTS), twice)}
    with pytest.raises(AttributeError):
        check_saved(saved, fresh)


class Masked(BumpTask):
    """Its network has a causal mask, as transformers do: infinities from the beginning."""

    def model(self, spec: RunSpec) -> torch.nn.Module:
        model = super().model(spec)
        model.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(3))
        return model


def test_what_is_infinite_from_the_beginning_may_be_so_in_a_checkpoint() -> None:
    training, fresh = (Training(SPEC, Masked()) for _ in range(2))
    training.advance(0.0)
    check_saved({"training": training.state_dict(), "seconds": 1.5}, fresh)
    next(training.model.parameters()).data.fill_(float("inf"))
    with pytest.raises(ValueError, match="no run has such values of weights"):
        check_saved({"training": training.state_dict(), "seconds": 1.5}, fresh)


class Around(torch.nn.Sequential):
    """It keeps a number beside its tensors."""

    tally = 0

    def get_extra_state(self) -> dict[str, int]:
        return {"tally": self.tally}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.tally = state["tally"]


class Tallied(BumpTask):
    def model(self, spec: RunSpec) -> torch.nn.Module:
        return Around(super().model(spec))


def test_extra_state_may_be_no_tensor() -> None:
    training, fresh = (Training(SPEC, Tallied()) for _ in range(2))
    training.advance(0.0)
    check_saved({"training": training.state_dict(), "seconds": 1.5}, fresh)
