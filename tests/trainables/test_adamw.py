"""AdamW is torch's own to the bit, and does not import torch's compiler."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.conftest import ROOT
from trainables.training.adamw import AdamW

TRAINS = """
import sys
from trainables.bumps import BumpTask
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.training.loop import Training
from trainables.training.packs import Pack

for decoder in ("mlp", "cnn"):
    fields = spec_fields(BumpTask(), {"decoder": decoder, "width": 4, "depth": 1})
    spec = RunSpec(task="trainables.bumps:BumpTask", N=8, data_count=20, seed=0, max_steps=20, **fields)
    run = Training(spec, BumpTask())
    assert run.advance() and run.result().steps == 20
print([name for name in ("torch._dynamo", "sympy") if name in sys.modules])
"""


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, 2)).to(dtype)


def gradients(model: nn.Module, step: int) -> None:
    """Gradients of a loss, but of the last layer only at every second step, as of a layer that a step does not use."""
    model.zero_grad()
    torch.manual_seed(step)
    outputs = model[:3](torch.randn(11, 5, dtype=next(model.parameters()).dtype))
    (outputs.square().sum() + (model[3](outputs).sum() if step % 2 else 0.0)).backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("decay", "beta2"), [(0.0, 0.999), (0.01, 0.999), (3.0, 0.999), (0.01, 0.9)])
def test_it_is_torchs_own_to_the_bit(dtype: torch.dtype, decay: float, beta2: float) -> None:
    ours, theirs = network(dtype), network(dtype)
    known = torch.optim.AdamW(theirs.parameters(), 0.01, betas=(0.9, beta2), weight_decay=decay, fused=True)
    optimizers = AdamW(ours.parameters(), 0.01, decay, beta2), known
    for step in range(25):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
            gradients(model, step)
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    ours_state, theirs_state = (optimizer.state_dict()["state"] for optimizer in optimizers)
    assert ours_state.keys() == theirs_state.keys()
    for place, state in ours_state.items():
        assert all(torch.equal(state[name], theirs_state[place][name]) for name in ("step", "exp_avg", "exp_avg_sq"))


def test_it_goes_on_from_a_state_of_torchs_own() -> None:
    """As checkpoints of launches from before have it."""
    ours, theirs = network(), network()
    former = torch.optim.AdamW(theirs.parameters(), 0.02, weight_decay=0.1, fused=True)
    for step in range(5):
        gradients(theirs, step)
        former.step()
    ours.load_state_dict(theirs.state_dict())
    optimizer = AdamW(ours.parameters(), 1.0, 1.0)
    optimizer.load_state_dict(copy.deepcopy(former.state_dict()))
    again = AdamW(ours.parameters(), 1.0, 1.0)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert [again.param_groups[0][name] for name in ("lr", "weight_decay")] == [0.02, 0.1]
    for step in range(5, 12):
        for model, one in ((ours, again), (theirs, former)):
            gradients(model, step)
            one.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_what_is_loaded_lies_in_memory_as_its_parameter() -> None:
    """The fused kernel goes by places in memory."""
    model = nn.Conv2d(3, 4, 2)
    model(torch.ones(1, 3, 2, 2)).sum().backward()
    former = AdamW(model.parameters(), 0.1, 0.0)
    former.step()
    other = copy.deepcopy(model).to(memory_format=torch.channels_last)
    later = AdamW(other.parameters(), 0.1, 0.0)
    later.load_state_dict(former.state_dict())
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        for name, value in later.state[q].items():
            assert torch.equal(value, former.state[p][name])
            assert name == "step" or value.stride() == q.stride()


def test_gradients_are_cleared() -> None:
    model = network()
    gradients(model, 1)
    AdamW(model.parameters(), 0.1, 0.0).zero_grad()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.slow(2)
def test_a_training_does_not_import_torchs_compiler() -> None:
    """It takes almost two seconds of every worker."""
    command = [sys.executable, "-W", "error", "-c", TRAINS]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (found.stdout.strip(), found.stderr) == ("[]", "")
