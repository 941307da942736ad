"""The example of grokking: its table, its network, and that it fills in a table of which it has seen enough."""

import pytest
import torch

from examples.grokking import Modular, Quadratic
from tests.conftest import ROOT
from trainables.check import check_task
from trainables.settings import spec_fields
from trainables.spec import RunSpec
from trainables.training.loop import Training

TASK = Modular()


def spec(p: int, data_count: int, **changes: object) -> RunSpec:
    fields = spec_fields(TASK, {"width": 64}) | {"lr": 0.01, "weight_decay": 3.0, "batch_size": 512, "stop": "target"}
    return RunSpec(task="examples.grokking:Modular", N=p, data_count=data_count, seed=0, **fields | changes)  # type: ignore[arg-type]


def test_the_example_is_short_and_sound() -> None:
    assert len((ROOT / "examples" / "grokking.py").read_text().splitlines()) <= 90
    check_task(TASK, spec(11, 0))
    with pytest.raises(ValueError, match="N, the modulus p, must be a number from 4 to 200, not 3"):
        TASK.counts(spec(3, 0))


def test_every_pair_is_trained_on_or_held_out_and_its_target_is_the_sum() -> None:
    data = TASK.data(spec(7, 20))
    pairs = [part.inputs.view(-1, 2, 7).argmax(dim=2) for part in data]
    assert list(map(len, pairs)) == [20, 29]
    assert len({tuple(pair) for part in pairs for pair in part.tolist()}) == 49
    for part, of_part in zip(data, pairs, strict=True):
        assert torch.equal(part.truth, of_part.sum(1) % 7)
        assert torch.equal(part.targets.argmax(1), part.truth)
        assert torch.equal(part.inputs.sum(1), torch.full((len(of_part),), 2.0))
    larger = TASK.data(spec(7, 30))
    assert torch.equal(larger.train.inputs[:20], data.train.inputs)


def test_a_network_of_cosines_solves_the_table() -> None:
    """The square of cos(w a + c) + cos(w b + c) holds cos(w (a + b) + 2 c): enough phases leave nothing else."""
    p, phases = 7, 8
    columns, rows = [], []
    number = torch.arange(p).double()
    for k in range(1, p // 2 + 1):
        for phase in (torch.arange(phases) * torch.pi / phases).tolist():
            wave = torch.cos(2 * torch.pi * k * number / p + phase)
            columns.append(torch.cat([wave, wave]))
            rows.append(torch.cos(2 * torch.pi * k * number / p + 2 * phase))
    network = Quadratic(p, len(columns)).double()
    with torch.no_grad():
        network.U.copy_(torch.stack(columns, dim=1))
        network.V.copy_(torch.stack(rows))
    whole = TASK.data(spec(p, 0)).held_out
    assert torch.equal(network(whole.inputs.double()).argmax(dim=1), whole.truth)


def test_a_small_table_is_filled_in_if_enough_of_it_is_seen() -> None:
    def ended(data_count: int) -> tuple[str, float]:
        training = Training(spec(11, data_count, max_steps=160), TASK)
        while not training.advance(seconds=60):
            pass
        result = training.result()
        assert result.accuracy is not None
        return result.status, result.accuracy

    status, accuracy = ended(100)
    assert (status, accuracy >= 0.9) == ("passed", True)
    status, accuracy = ended(30)
    assert (status, accuracy < 0.5) == ("missed", True)
