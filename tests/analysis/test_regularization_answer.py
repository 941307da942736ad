"""The answer of the regularization study: its numbers, its files, and what its figures show."""

import dataclasses
import json
import math
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread
from optuna.trial import TrialState
from safetensors.torch import save
from scipy import stats

from analysis.figures import regularization as figures
from analysis.figures.composition import draw_composition, judged
from analysis.files import weights_of, write_regularization
from analysis.geometry import volume
from analysis.regularization import FINALS, SUMMARY, TRIALS, Answer, TrainedLowRank, _trial, load_decoders
from orchestrator.searches.samplers import Trial
from orchestrator.store import make_row
from orchestrator.store.artifacts import Artifacts
from tests.conftest import colours
from trainables.regularization import RegularizationTask
from trainables.spec import RunSpec
from trainables.training.loop import Training

N = 8
TASK = RegularizationTask()
WEIGHTS = {"none": (0.0, 0.0), "entropy": (0.1, 0.0), "variance": (0.0, 0.01), "both": (0.1, 0.01), "tuned": (0.02, 0.003)}
STUDY = {"N": N, "region": "corner", "sigma": 1.5, "objectives": "validation", "seeds": [0, 1]}
PUBLISHED = {"N": 32, "region": "corner", "sigma": 1.5}
Final = dict[str, Any]


def spec(setting: str, seed: int = 0) -> RunSpec:
    entropy, variance = WEIGHTS[setting]
    options = {**TASK.defaults, "lambda_entropy": entropy, "lambda_variance": variance}
    return RunSpec(
        task="trainables.regularization:RegularizationTask", dataset="bumps", N=N, data_count=39, seed=seed, decoder="low-rank",
        depth=2, width=2, encoding="one-hot", holdout="corner", options=tuple(options.items()), max_steps=60, stop="budget",
    )  # fmt: skip


def final(setting: str, seed: int = 0, ood: float | None = 1e-3, id_: float | None = 1e-5, **other: Any) -> Final:
    fields = {"status": "missed", "reason": "budget", "accuracy": 0.5, "measures": {"exact": 0.25}, "steps": 60}
    row = make_row(
        spec(setting, seed), task_version="1", fixed_count=0, id_mse=id_, ood_mse=ood, **(fields | other),
    )  # fmt: skip
    return {"setting": setting, "row": row}


def trial(number: int, **other: Any) -> dict[str, Any]:
    weights = {"lambda_entropy": 0.02 * (number + 1), "lambda_variance": 0.003}
    errors = {"id_mse": 2e-5, "validation_mse": 4e-4 / (number + 1)}
    return {"number": number, **weights, "status": "finished", **errors, "steps": 60, "key": f"trial-{number}", **other}


def nowhere(key: str) -> bytes:
    raise FileNotFoundError(key)


def summary_of(answer: Answer, setting: str) -> dict[str, Any]:
    return answer.summary.set_index("setting").loc[setting].to_dict()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Final], Callable[[str], bytes]]:
    """Real short trainings of three settings, two seeds each, and their weights."""
    store = Artifacts(tmp_path_factory.mktemp("store"))
    torch.set_num_threads(1)
    finals = []
    for setting in ("none", "both", "tuned"):
        for seed in (1, 0):
            training = Training(spec(setting, seed), TASK)
            training.advance()
            result = training.result()
            fields = {name: getattr(result, name) for name in type(result).__dataclass_fields__}
            row = make_row(training.spec, task_version="1", fixed_count=0, **fields)
            store.save_weights(row["key"], save(training.model.state_dict()))
            finals.append({"setting": setting, "row": row})
    return finals, store.load_weights


class TestSummary:
    def test_means_and_the_t_interval_of_the_mean_logarithm(self) -> None:
        oods, ids = [1e-3, 4e-3, 2e-3], [1e-5, 1e-5, 1e-6]
        finals = [final("both", s, o, i, accuracy=0.1 * s) for s, (o, i) in enumerate(zip(oods, ids, strict=True))]
        answer = Answer.of([], finals, None, [], STUDY)
        row = summary_of(answer, "both")
        assert tuple(answer.summary.columns) == SUMMARY
        assert (row["seeds"], row["failed"], row["note"]) == (3, 0, "")
        assert row["ood_mse_mean"] == pytest.approx(7e-3 / 3)
        assert row["ood_mse_gmean"] == pytest.approx(2e-3)
        for name, values in (("ood_mse", oods), ("id_mse", ids)):
            logs = np.log(values)
            low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
            assert row[f"{name}_lower"] == pytest.approx(math.exp(low))
            assert row[f"{name}_upper"] == pytest.approx(math.exp(high))
        assert row["accuracy"] == pytest.approx(0.1)
        assert row["exact"] == 0.25
        assert (row["lambda_entropy"], row["lambda_variance"]) == (0.1, 0.01)

    def test_runs_that_failed_or_diverged_are_counted_and_not_averaged(self) -> None:
        finals = [
            final("none", 0, 2e-2),
            final("none", 1, 8e-2),
            final("none", 2, None, None, status="failed", accuracy=None, measures={}, error="out of memory"),
            final("none", 3, math.nan, math.inf, status="diverged", accuracy=0.0),
        ]
        row = summary_of(Answer.of([], finals, None, [], STUDY), "none")
        assert (row["seeds"], row["failed"], row["note"]) == (2, 2, "1 failed; 1 diverged")
        assert row["ood_mse_gmean"] == pytest.approx(4e-2)
        assert row["accuracy"] == 0.5

    def test_no_target_decides_over_a_run_and_one_without_errors_is_named(self) -> None:
        finals = [final("none", 0, 2e-2), final("none", 1, 3e-2, status="passed"), final("none", 2, None, 1e-5)]
        answer = Answer.of([], finals, None, [], STUDY)
        assert answer.finals["status"].tolist() == ["finished"] * 3
        row = summary_of(answer, "none")
        assert (row["seeds"], row["failed"], row["note"]) == (2, 1, "1 without finite errors")

    @pytest.mark.slow(1)
    def test_steps_are_whole_numbers_in_the_files(self, tmp_path: Path) -> None:
        failed = final("none", 1, None, None, status="failed", accuracy=None, measures={}, steps=None)
        answer = Answer.of([trial(0), trial(1, steps=None)], [final("none", 0, 2e-2), failed], None, [], STUDY)
        write_regularization(answer, tmp_path, nowhere)
        assert pd.read_csv(tmp_path / "trials.csv", dtype=str)["steps"].fillna("").tolist() == ["60", ""]
        assert pd.read_csv(tmp_path / "regularization.csv", dtype=str)["steps"].fillna("").tolist() == ["60", ""]
        runs = json.loads((tmp_path / "regularization.json").read_text())["finals"]
        assert json.dumps([run["steps"] for run in runs]) == "[60, null]"

    def test_one_seed_has_no_interval_and_none_no_mean(self) -> None:
        failed = final("both", 0, None, None, status="failed", accuracy=None, measures={})
        answer = Answer.of([], [final("none", 0, 2e-2), failed], None, [], STUDY)
        one, none = summary_of(answer, "none"), summary_of(answer, "both")
        assert one["ood_mse_gmean"] == pytest.approx(2e-2)
        assert math.isnan(one["ood_mse_lower"])
        assert one["note"] == "one seed: no interval"
        assert (none["seeds"], none["failed"]) == (0, 1)
        assert math.isnan(none["ood_mse_mean"])
        assert math.isnan(none["accuracy"])

    def test_settings_stand_in_their_order_and_may_share_a_run(self) -> None:
        both = final("both")
        finals = [{"setting": "tuned", "row": both["row"]}, final("none", 1), both, final("none", 0)]
        answer = Answer.of([], finals, None, [], STUDY)
        assert tuple(answer.finals.columns) == FINALS
        assert list(answer.finals[["setting", "seed"]].itertuples(index=False, name=None)) == [
            ("none", 0), ("none", 1), ("both", 0), ("tuned", 0),
        ]  # fmt: skip
        assert list(answer.summary["setting"]) == ["none", "both", "tuned"]


class TestLines:
    def test_the_choice_comes_first_then_a_line_per_setting_with_the_papers_model_beside_it(self) -> None:
        best = trial(1)
        finals = [final("none", 0, 2e-2, 1e-6), final("both", 0, 1e-4), final("both", 1, 1e-4)]
        lines = Answer.of([trial(0), best], finals, best, [best], PUBLISHED).lines()
        assert lines[0] == (
            "chosen: lambda_entropy 0.04, lambda_variance 0.003 (trial 1 of 2; validation MSE 2.00e-04, ID MSE 2.00e-05)"
        )
        assert lines[2] == (
            "none: ID MSE 1.0e-06, OOD MSE 2.0e-02, accuracy 0.500 (authors' model: ID 1.07e-06, OOD 2.76e-02); "
            "one seed: no interval"
        )
        assert lines[3].startswith("both: ID MSE 1.0e-05, OOD MSE 1.0e-04, accuracy 0.500")
        assert lines[3].endswith("(authors' model: ID 4.40e-05, OOD 1.45e-04)")

    @pytest.mark.parametrize(
        ("accuracy", "told"),
        [(0.99834, "0.998"), (0.99996, "0.999"), (1.0, "1.000"), (0.57, "0.570"), (None, "nan")],
    )
    def test_an_accuracy_is_rounded_down(self, accuracy: float | None, told: str) -> None:
        (*_, line) = Answer.of([], [final("both", accuracy=accuracy)], None, [], STUDY).lines()
        assert f", accuracy {told};" in line

    @pytest.mark.parametrize("other", [{"N": 16}, {"region": "center"}, {"sigma": 1.0}])
    def test_the_papers_model_answers_its_own_question_only(self, other: dict[str, Any]) -> None:
        answer = Answer.of([], [final("both")], None, [], PUBLISHED | other)
        assert not any("authors" in line for line in answer.lines())

    def test_no_complete_trial(self) -> None:
        answer = Answer.of([trial(0, status="pruned"), trial(1, status="failed")], [], None, [], STUDY)
        assert answer.lines() == ["nothing is chosen: none of 2 trials is complete"]

    def test_trials_that_are_not_confirmed_choose_nothing(self) -> None:
        lines = Answer.of([trial(0), trial(1, status="pruned")], [], None, [], STUDY).lines()
        assert lines == ["nothing is chosen yet: 1 of 2 trials are complete, none of them is confirmed"]

    def test_the_tuned_decoder_is_compared_with_every_other_one_seed_by_seed(self) -> None:
        finals = [final("tuned", s, o) for s, o in enumerate((1e-4, 2e-4, 4e-4))]
        finals += [final("both", s, o) for s, o in enumerate((2e-4, 4e-4, 9e-4))]
        finals += [final("none", s, 1e-4) for s in (1, 2, 7)]
        answer = Answer.of([], finals, None, [], STUDY)
        both, none = answer.lines()[-2:][::-1]
        assert both.startswith("tuned against both, seed by seed: ratio of OOD MSE 0.481 [")
        assert both.endswith("], so it is better")
        assert none.startswith("tuned against none, seed by seed: ratio of OOD MSE 2.83 [")
        assert none.endswith("], so they cannot be told apart")
        assert [found["pairs"] for found in answer.to_json()["comparisons"]] == [2, 3]

    def test_a_tuned_decoder_that_is_worse_than_another_is_said_to_be_worse(self) -> None:
        finals = [final("tuned", s, o) for s, o in enumerate((2e-4, 4e-4, 9e-4))]
        finals += [final("both", s, o) for s, o in enumerate((1e-4, 2e-4, 4e-4))]
        finals += [final("variance", s, o) for s, o in enumerate((2e-4, 4e-4, 9e-4))]
        variance, both = sorted(Answer.of([], finals, None, [], STUDY).lines()[-2:], reverse=True)
        assert both.startswith("tuned against both, seed by seed: ratio of OOD MSE 2.08 [")
        assert both.endswith("], so it is worse")
        assert variance == "tuned against variance, seed by seed: ratio of OOD MSE 1; no seed told them apart"

    def test_an_error_of_zero_is_the_least_there_is(self) -> None:
        finals = [final("tuned", s, o) for s, o in enumerate((0.0, 1e-4))]
        finals += [final("both", s, o) for s, o in enumerate((1e-4, 0.0))]
        finals += [final("none", s, 0.0) for s in (0, 1)]
        answer = Answer.of([], finals, None, [], STUDY)
        both, none = sorted(answer.comparisons(), key=lambda found: found["second"])
        assert (both["ratio"], both["upper"], both["decides"]) == (pytest.approx(1.0), math.inf, False)
        assert none["second"] == "none"
        assert none["ratio"] > 1e100
        row = summary_of(answer, "both")
        assert (row["ood_mse_mean"], row["ood_mse_lower"], row["ood_mse_upper"]) == (5e-5, 0.0, math.inf)
        json.dumps(answer.to_json(), allow_nan=False)
        assert answer.lines()

    def test_a_setting_whose_runs_all_failed(self) -> None:
        failed = final("none", 0, None, None, status="failed", accuracy=None, measures={})
        assert Answer.of([], [failed], None, [], STUDY).lines()[1:] == ["none: nothing to average; 1 failed"]

    def test_a_weight_that_was_not_searched_is_not_among_the_chosen(self) -> None:
        best = trial(0, lambda_variance=math.nan)
        assert Answer.of([best], [], best, [best], STUDY).lines()[0].startswith("chosen: lambda_entropy 0.02 (trial 0 of 1;")


class TestDoubt:
    BLANK_ID, BLANK_VALIDATION = 0.08738, 0.08361

    def test_a_blank_image_is_judged_as_the_task_judges(self) -> None:
        answer = Answer.of([], [], None, [], STUDY)
        for holdout, sets in (("corner", ("rest", "validation")), ("corner-validation", ("rest",))):
            of_holdout = dataclasses.replace(spec("none"), holdout=holdout)
            data = TASK.data(dataclasses.replace(of_holdout, data_count=TASK.counts(of_holdout).low))
            assert answer.blank_error(*sets) == pytest.approx(float(data.train.targets.square().mean()), rel=1e-5)
            judged = answer.blank_error("validation" if holdout.endswith("validation") else "ood")
            assert judged == pytest.approx(float(data.held_out.targets.square().mean()), rel=1e-5)
        assert answer.blank_error("rest", "validation") == pytest.approx(self.BLANK_ID, rel=1e-3)
        assert answer.blank_error("validation") == pytest.approx(self.BLANK_VALIDATION, rel=1e-3)

    @staticmethod
    def doubt(id_mse: float, validation_mse: float, final_id_mse: float, trials: int = 2, **more: int) -> str | None:
        found = [trial(i, id_mse=id_mse, validation_mse=validation_mse) for i in range(trials)]
        return Answer.of(found, [final("none", 0, id_=final_id_mse)], found[0], [found[0]], {**STUDY, **more}).doubt()

    def test_images_that_no_run_has_take_no_memory(self) -> None:
        huge = Answer.of([], [], None, [], {"N": 2000, "sigma": 1.5, "region": "corner"})
        tracemalloc.start()
        with pytest.raises(ValueError, match="N is 2000, and no run of this study has more than 1024"):
            huge.blank_error("ood")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()

    def test_rows_that_are_larger_than_their_question_says_take_no_memory(self) -> None:
        finals = [final("none", seed) for seed in range(2)]
        for one in finals:
            one["row"]["N"] = 2000
        answer = Answer.of([], finals, None, [], STUDY)
        tracemalloc.start()
        with pytest.raises(ValueError, match="N is 2000, and no run of this study has more than 1024"):
            figures.draw_curves(answer)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()
        assert load_decoders(answer, lambda key: pytest.fail("its weights are not read")) == {}

    def test_where_all_images_are_blank_nothing_was_learned(self) -> None:
        doubt = self.doubt(0.0441, 0.08, 0.0440)
        assert doubt == (
            "nothing was learned: all images are nearly blank (ID MSE 4.4e-02 at best, a blank image has 8.7e-02), so the "
            "chosen weights mean nothing: train for more steps (--epochs), or faster (--lr), or on more images (a larger --N)"
        )
        assert self.doubt(0.0441, 0.08, 0.0440, trials=1) == doubt
        assert self.doubt(math.nan, 0.01, math.nan) is None, "that is for other words: no run is complete"

    def test_where_no_trial_composes_the_choice_means_nothing(self) -> None:
        for doubt in (self.doubt(0.0430, 0.0628, 0.08), self.doubt(0.08, 0.0628, 0.0430)):
            assert doubt is not None
            assert doubt.startswith("no trial draws unseen combinations much better than a blank image (validation MSE")
        assert self.doubt(0.0430, 0.0626, 0.08) is None
        assert self.doubt(0.0430, 0.0628, 0.08, trials=1) is None, "nothing was chosen"

    def test_a_choice_by_pseudo_boxes_is_judged_by_what_is_blank_there(self) -> None:
        """They lie among the rest, where a blank image is off by more than in the validation box."""
        assert self.doubt(0.0430, 0.065, 0.08) is not None
        assert self.doubt(0.0430, 0.065, 0.08, confirm_seeds=8) is None


class TestFiles:
    @pytest.mark.slow(6)
    def test_everything_that_can_be_is_written(
        self, trained: tuple[list[Final], Callable[[str], bytes]], tmp_path: Path
    ) -> None:
        finals, weights = trained
        best = trial(1)
        out = tmp_path / "deep" / "out"
        paths = write_regularization(Answer.of([trial(0), best], finals, best, [best], STUDY), out, weights)
        images = ["errors", "curves", "embeddings", "volume", "composition", "images"]
        assert [p.name for p in paths] == [
            "trials.csv", "regularization.csv", "regularization.json", *(f"{name}.png" for name in images),
        ]  # fmt: skip
        assert sorted(paths) == sorted(out.iterdir())
        assert tuple(pd.read_csv(paths[0]).columns) == TRIALS
        table = pd.read_csv(paths[1])
        assert tuple(table.columns) == FINALS
        assert list(table["ood_mse"])[:2] == [f["row"]["ood_mse"] for f in sorted(finals[:2], key=lambda f: f["row"]["seed"])]
        for path in paths[3:]:
            pixels = imread(path)
            assert min(pixels.shape[:2]) > 300, path.name
            assert colours(pixels) > 50, path.name

    def test_the_json_has_null_where_nothing_is_known(self) -> None:
        failed = final("none", 1, None, None, status="failed", accuracy=None, measures={})
        best = trial(0, lambda_variance=math.nan)
        answer = Answer.of([best, trial(1, validation_mse=None)], [final("none"), failed], best, [best], STUDY)
        text = json.dumps(answer.to_json(), allow_nan=False)
        told = json.loads(text)
        assert told["settings"] == STUDY
        assert told["best"]["lambda_variance"] is None
        assert told["best"]["validation_mse"] == 4e-4
        assert told["trials"][1]["validation_mse"] is None
        assert [f["ood_mse"] for f in told["finals"]] == [1e-3, None]
        assert told["summary"][0]["ood_mse_lower"] is None
        assert told["summary"][0]["paper"] is None
        assert [t["number"] for t in told["front"]] == [0]

    @pytest.mark.slow(1)
    @pytest.mark.parametrize(
        ("trials", "finals", "names"),
        [
            ([], [], []),
            ([trial(0)], [], ["trials.csv"]),
            ([], [final("none")], ["regularization.csv", "errors.png"]),
            ([], [final("none", 0, None, None, status="failed", accuracy=None, measures={})], ["regularization.csv"]),
        ],
        ids=["nothing", "trials only", "no curve and no weights", "a failed run"],
    )
    def test_what_is_missing_is_left_out(
        self, trials: list[dict[str, Any]], finals: list[Final], names: list[str], tmp_path: Path
    ) -> None:
        answer = Answer.of(trials, finals, None, [], STUDY)
        assert {p.name for p in write_regularization(answer, tmp_path, nowhere)} == {"regularization.json", *names}
        assert json.loads((tmp_path / "regularization.json").read_text())["best"] is None

    @pytest.mark.slow(2)
    def test_settings_and_seeds_without_weights_are_passed_over(
        self, trained: tuple[list[Final], Callable[[str], bytes]], tmp_path: Path
    ) -> None:
        finals, weights = trained
        keys = {(f["setting"], f["row"]["seed"]): f["row"]["key"] for f in finals}
        store = Artifacts(tmp_path)
        for at in (("none", 1), ("both", 0)):
            store.save_weights(keys[at], weights(keys[at]))
        store.save_weights(keys["tuned", 0], b"no tensors")
        store.save_weights(keys["tuned", 1], save({"layers.0.weight": torch.zeros(2, 2)}))
        os.mkfifo(store.weights_path(keys["both", 1]))
        answer = Answer.of([], finals, None, [], STUDY)
        decoders = load_decoders(answer, weights_of(str(tmp_path)))
        assert {setting: decoder.spec.seed for setting, decoder in decoders.items()} == {"none": 1, "both": 0}
        assert load_decoders(answer, nowhere) == {}


class TestDecoders:
    @pytest.fixture
    def decoders(self, trained: tuple[list[Final], Callable[[str], bytes]]) -> dict[str, TrainedLowRank]:
        finals, weights = trained
        return load_decoders(Answer.of([], finals, None, [], STUDY), weights)

    def test_a_decoder_draws_what_it_drew_when_trained(
        self, decoders: dict[str, TrainedLowRank], trained: tuple[list[Final], Callable[[str], bytes]]
    ) -> None:
        row = next(f["row"] for f in trained[0] if f["setting"] == "both" and f["row"]["seed"] == 0)
        held_out = TASK.data(decoders["both"].spec).held_out
        with torch.no_grad():
            error = (decoders["both"].model(held_out.inputs) - held_out.targets).square().mean().item()
        assert error == pytest.approx(row["ood_mse"], rel=1e-5)

    def test_a_mosaic_holds_every_panel_upright_from_the_upper_left(self) -> None:
        panels = np.arange(5 * 4).reshape(5, 2, 2).astype(float)
        shown = figures.mosaic(panels, columns=3, gap=1)
        assert shown.shape == figures.mosaic_shape(5, 3, 2, 1) == (7, 10)
        nan = math.nan
        np.testing.assert_array_equal(
            shown[1:3], [[nan, 2, 3, nan, 6, 7, nan, 10, 11, nan], [nan, 0, 1, nan, 4, 5, nan, 8, 9, nan]]
        )
        np.testing.assert_array_equal(shown[4, 1:6], [14, 15, nan, 18, 19])
        assert np.isnan(shown[[0, 3, 6]]).all()
        assert np.isnan(shown[4:, 6:]).all()

    @pytest.mark.parametrize(("n", "columns"), [(8, 4), (16, 4), (32, 8), (64, 8), (24, 6), (31, 6)])
    def test_panels_fill_whole_rows_where_they_can(self, n: int, columns: int) -> None:
        assert figures.panel_columns(n) == columns

    def test_the_figure_of_embeddings_has_every_tokens_matrix_in_its_panel(self, decoders: dict[str, TrainedLowRank]) -> None:
        model = decoders["tuned"].model
        figure = figures.draw_embeddings([decoders["none"], decoders["tuned"]])
        of_x, of_y = figure.axes[2], figure.axes[3]
        assert of_x.get_title() == "tuned, seed 0: tokens of x"
        gap, columns = 2, 4
        for factor, axes in enumerate((of_x, of_y)):
            shown = np.asarray(axes.images[0].get_array())
            for token in (0, 3, 6):
                u = torch.nn.functional.normalize(model.rows[factor, token], dim=-1)
                v = torch.nn.functional.normalize(model.columns[factor, token], dim=-1)
                matrix = torch.einsum("r,ri,rj->ij", model.strengths[factor, token], u, v).detach().numpy()
                top, left = figures.mosaic_corner(token, columns, N, gap)
                np.testing.assert_allclose(shown[top : top + N, left : left + N], matrix[::-1], atol=1e-6)

    def test_images_are_shown_below_their_targets(self, decoders: dict[str, TrainedLowRank]) -> None:
        chosen = [decoders["none"], decoders["both"]]
        axes = figures.draw_images(chosen).axes[0]
        assert [text.get_text() for text in axes.get_yticklabels()] == [
            "target",
            "no penalty\nseed 0",
            "entropy +\nvariance\nseed 0",
        ]
        centres = figures.spread(*chosen[0].box)
        assert [text.get_text() for text in axes.get_xticklabels()] == [f"({int(x)}, {int(y)})" for x, y in centres]
        assert ((centres >= 3) & (centres <= 7)).all()
        shown = np.asarray(axes.images[0].get_array())
        split = TASK.split(chosen[0].spec, centres)
        for row, images in enumerate((split.targets, chosen[0].model(split.inputs), chosen[1].model(split.inputs))):
            top, left = figures.mosaic_corner(row * 5 + 3, 5, N, 1)
            expected = images[3, 0].detach().numpy()[::-1]
            np.testing.assert_allclose(shown[top : top + N, left : left + N], expected, atol=1e-6)

    def test_the_volume_is_that_of_the_stacked_matrices(self, decoders: dict[str, TrainedLowRank]) -> None:
        model = decoders["both"].model
        of_x, of_y = figures.token_matrices(model).reshape(2, N, N * N)
        stacked = np.array([[np.concatenate([of_x[x], of_y[y]]) for x in range(N)] for y in range(N)])
        np.testing.assert_allclose(figures.embedding_volume(model), volume(stacked), rtol=1e-5)
        axes = figures.draw_volume([decoders["none"], decoders["both"]]).axes[1]
        logs = np.log10(volume(stacked))
        np.testing.assert_allclose(np.asarray(axes.images[0].get_array()), logs, rtol=1e-4, atol=1e-5)
        assert axes.get_title().endswith(f"OOD {logs[3:, 3:].mean():.2f}")


def test_bands_are_means_over_the_seeds_beside_the_range_of_the_box() -> None:
    finals = [final(setting, seed) for setting in ("none", "both", "tuned") for seed in (0, 1)]
    bands = np.random.default_rng(0).random((6, N)).astype(np.float32)
    rows = [{"setting": f["setting"], "seed": f["row"]["seed"], "array": band} for f, band in zip(finals, bands, strict=True)]
    table = pd.DataFrame([{**row, "quantity": quantity} for row in rows for quantity in ("band", "band_ood")])
    axes = figures.draw_bands(Answer.of([], finals, None, [], STUDY), table).axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    for first, name in enumerate(("no penalty", "entropy + variance", "tuned")):
        np.testing.assert_allclose(lines[name].get_ydata(), bands[2 * first : 2 * first + 2].mean(axis=0))
    assert [lines[name].get_linestyle() for name in ("entropy + variance", "tuned")] == ["-", "--"]
    table.at[0, "array"] = np.full(N, np.nan)
    for row in (4, 6):
        table.at[row, "array"] = np.full(N, np.nan)
    lines = {line.get_label(): line for line in figures.draw_bands(Answer.of([], finals, None, [], STUDY), table).axes[0].lines}
    np.testing.assert_allclose(lines["no penalty"].get_ydata(), bands[1])
    assert "entropy + variance" not in lines
    [box] = axes.patches
    assert (box.get_x(), box.get_x() + box.get_width()) == (2.5, 7.5)


def test_bars_are_geometric_means_and_the_blank_image_is_a_line() -> None:
    finals = [final("none", 0, 1e-2), final("none", 1, 4e-2), final("both", 0, 1e-4)]
    axes = figures.draw_errors(Answer.of([], finals, None, [], STUDY)).axes[0]
    assert axes.get_yscale() == "log"
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([1e-5, 1e-5, 2e-2, 1e-4])
    blank = TASK.data(spec("none")).held_out.targets.square().mean().item()
    line = next(line for line in axes.lines if line.get_label() == "blank image (OOD)")
    assert list(line.get_ydata()) == pytest.approx([blank, blank])
    ticks = [text.get_text().split("\n")[0] for text in axes.get_xticklabels()]
    assert ticks == ["no penalty", "entropy + variance"]


def test_intervals_are_named_where_there_are_some_and_end_near_what_was_found() -> None:
    def drawn(*finals: Final) -> tuple[str, tuple[float, float]]:
        [axes] = figures.draw_errors(Answer.of([], list(finals), None, [], STUDY)).axes
        return axes.get_title().splitlines()[-1], axes.get_ylim()

    title, _ = drawn(final("none"), final("both"))
    assert title == "bars: geometric mean over seeds; dots: seeds"
    title, (low, high) = drawn(final("none", 0, 1e-11, 1e-12), final("none", 1, 1e-2, 1e-4), final("both", 0, 1e-3))
    assert title == "bars: geometric mean over seeds, with 95 % interval; dots: seeds"
    assert 1e-14 < low <= 1e-12 / 3
    assert 1e-2 < high < 1


def test_intervals_that_are_not_far_longer_than_what_they_belong_to_are_seen_in_full() -> None:
    finals = [final("none", seed, 1e-3 * (1 + seed / 9), 1e-5 * (1 + seed / 9)) for seed in range(3)]
    answer = Answer.of([], finals, None, [], STUDY)
    [axes] = figures.draw_errors(answer).axes
    [row] = answer.summary.to_dict("records")
    assert axes.get_ylim()[0] < row["id_mse_lower"] < row["ood_mse_upper"] < axes.get_ylim()[1]


def test_what_is_far_from_all_errors_is_seen_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "paper", lambda *_: {"id_mse": 1e-9, "ood_mse": 1e-8})
    [axes] = figures.draw_errors(Answer.of([], [final("none", 0, 900.0, 300.0)], None, [], STUDY)).axes
    low, high = axes.get_ylim()
    assert low < 1e-9, "the paper's model"
    assert high > 900
    monkeypatch.undo()
    [axes] = figures.draw_errors(Answer.of([], [final("none", 0, 900.0, 300.0)], None, [], STUDY)).axes
    assert 1e-4 < axes.get_ylim()[0] < 0.1, "the blank image"
    [axes] = figures.draw_errors(Answer.of([], [final("none", 0, 0.0, 0.0)], None, [], STUDY)).axes
    assert 1e-4 < axes.get_ylim()[0] < 0.1


def test_curves_are_geometric_means_over_the_seeds_by_epoch() -> None:
    curve = {"curve_step": [20, 40], "curve_accuracy": [0.0, 0.0]}
    finals = [
        final("none", 0, curve_loss=[1e-2, 1e-4], curve_error=[1e-2, 1e-3], **curve),
        final("none", 1, curve_loss=[4e-2, 1e-4], curve_error=[1e-2, 9e-3], **curve),
    ]
    figure = figures.draw_curves(Answer.of([], finals, None, [], STUDY))
    left, right = figure.axes
    assert left.get_legend() is None  # it would lie over the curves
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["no penalty", "blank image"]
    for axes, expected in ((left, [1e-2, 3e-3]), (right, [2e-2, 1e-4])):
        line = axes.lines[0]
        assert list(line.get_xdata()) == [10, 20]  # 39 images are two batches of 32
        assert list(line.get_ydata()) == pytest.approx(expected)


def test_a_curve_with_a_step_twice_is_drawn() -> None:
    curve = {"curve_step": [20, 20, 40], "curve_loss": [1e-2] * 3, "curve_error": [1e-2] * 3, "curve_accuracy": [0.0] * 3}
    finals = [final("none", seed, **curve) for seed in (0, 1)]
    left, _ = figures.draw_curves(Answer.of([], finals, None, [], STUDY)).axes
    assert list(left.lines[0].get_xdata()) == [10, 20]


def test_the_figure_of_compositions_shows_the_median_and_the_worst_of_the_box(
    trained: tuple[list[Final], Callable[[str], bytes]],
) -> None:
    finals, weights = trained
    decoder = load_decoders(Answer.of([], finals, None, [], STUDY), weights)["both"]
    split, errors = judged(decoder)
    with torch.no_grad():
        by_hand = (decoder.model(split.inputs) - split.targets).square().mean(dim=(1, 2, 3))
    assert len(errors) == 25
    torch.testing.assert_close(errors, by_hand)
    figure = draw_composition([decoder])
    labels = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    x, y = (int(value) for value in split.truth[by_hand.argmax()])
    assert f"worst of the box: ({x}, {y})\nMSE {by_hand.max():.1e}" in labels[1]
    assert f"MSE {by_hand.sort().values[12]:.1e}" in labels[0]
    shown = figure.axes[7].images[0].get_array()
    assert shown is not None
    assert np.array_equal(shown, split.targets[by_hand.argmax(), 0])


def test_a_trial_is_told_with_the_error_that_the_search_goes_by() -> None:
    row = {"id_mse": 1e-5, "ood_mse": 5e-3, "steps": 10, "key": "k", "status": "missed", "stop": "budget"}
    trial = Trial(0, {}, TrialState.COMPLETE, row, [row], scores=[2e-3])
    assert (_trial(trial)["validation_mse"], _trial(trial)["id_mse"]) == (2e-3, 1e-5)
    both = dataclasses.replace(trial, scores=[3e-6, 2e-3])
    assert (_trial(both)["validation_mse"], _trial(both)["id_mse"]) == (2e-3, 3e-6)
